// A shared object that is not a plugin.
extern "C" __attribute__((visibility("default"))) int nothing_to_see(void) { return 0; }
