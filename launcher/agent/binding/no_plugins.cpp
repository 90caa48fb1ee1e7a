// hwloc can open plugins, and a static program cannot. These functions open nothing.
#include <dlfcn.h>

extern "C" {
void* dlopen(const char*, int) noexcept { return nullptr; }
void* dlsym(void*, const char*) noexcept { return nullptr; }
int dlclose(void*) noexcept { return -1; }
char* dlerror() noexcept { return nullptr; }
}
