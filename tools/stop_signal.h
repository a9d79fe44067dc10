// Ctrl-C (SIGINT), SIGTERM, a closed terminal (SIGHUP) and a closed pipe (SIGPIPE) as a wish to end the run in good
// order.
#pragma once

namespace tool {

// From now on the first Ctrl-C, SIGTERM or SIGHUP is only noted, so that the command can finish what it is doing and
// then end. The second one ends the command at once. If SIGHUP is ignored, as under nohup, it stays so. A write to a
// pipe whose reader has ended (SIGPIPE) is noted every time.
void note_stop_signals();

int stop_signal();  // the number of the signal that was noted; 0: none was

}  // namespace tool
