// A shared object that is no plugin.
extern "C" __attribute__((visibility("default"))) int nothing_to_see(void) { return 0; }
