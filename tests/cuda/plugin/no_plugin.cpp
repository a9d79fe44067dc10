// A library that has none of a plugin's functions.
int protrain_nothing() { return 0; }
