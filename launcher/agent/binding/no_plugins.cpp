// A static program cannot open hwloc's plugins. The linker replaces dlopen by this function (--wrap=dlopen), which
// fails.
extern "C" void* __wrap_dlopen(const char*, int) { return nullptr; }
