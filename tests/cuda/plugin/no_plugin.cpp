// A library that is no plugin at all.
int protrain_nothing() { return 0; }
