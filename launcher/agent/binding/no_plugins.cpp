// hwloc can open plugins, and a static program cannot: the linker's --wrap=dlopen takes this function, which opens none.
extern "C" void* __wrap_dlopen(const char*, int) { return nullptr; }
