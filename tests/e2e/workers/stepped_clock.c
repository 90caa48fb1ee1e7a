/* For LD_PRELOAD: delays the wall clock by the number of seconds in the first eight bytes of the file
 * E2E_CLOCK. Other clocks stay as they are. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t* offset;

__attribute__((constructor)) static void begin(void) {
  const char* path = getenv("E2E_CLOCK");
  const int file = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  void* map = mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, file, 0);
  if (map != MAP_FAILED) offset = map;
  close(file);
}

static int64_t step(void) { return offset == NULL ? 0 : *offset; }

int clock_gettime(clockid_t clock, struct timespec* to) {
  static int (*usual)(clockid_t, struct timespec*);
  if (usual == NULL) *(void**)&usual = dlsym(RTLD_NEXT, "clock_gettime");
  const int result = usual(clock, to);
  if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
    to->tv_sec += step();
  return result;
}

int gettimeofday(struct timeval* restrict to, void* restrict zone) {
  (void)zone;
  struct timespec now;
  if (clock_gettime(CLOCK_REALTIME, &now) != 0) return -1;
  to->tv_sec = now.tv_sec;
  to->tv_usec = now.tv_nsec / 1000;
  return 0;
}

time_t time(time_t* to) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (to != NULL) *to = now.tv_sec;
  return now.tv_sec;
}
