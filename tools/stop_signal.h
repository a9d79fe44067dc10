// Ctrl-C (SIGINT), SIGTERM and a closed pipe (SIGPIPE) as a wish to end the run in good order.
#pragma once

namespace tool {

// Makes the first Ctrl-C or SIGTERM only be noted, so that the command ends after what it is doing. The second one ends
// the command at once. A pipe whose reader has ended is noted each time.
void note_stop_signals();

int stop_signal();  // the number of the signal that was noted; 0: none was

}  // namespace tool
