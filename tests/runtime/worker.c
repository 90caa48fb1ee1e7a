/* One rank of process_test: runs the mode of its first argument, through the C ABI only. Exit codes:
 * 0 as expected, 1 otherwise (with a line on standard error), 7 a failure that it reports by a line
 * on standard output. */
#include <arpa/inet.h>
#include <dirent.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "horovod/horovod.h"

static char error[1024];

static int wrong(const char* what) {
  fprintf(stderr, "rank %d: %s: %s\n", hvd_rank(), what, error);
  return 1;
}

static int sums(const char* name, float* values, int64_t count) {
  hvd_tensor tensor = {NULL, HVD_FLOAT32, 1, &count, values, values};
  hvd_submission submission;
  hvd_handle handle = 0;
  memset(&submission, 0, sizeof submission);
  submission.struct_size = sizeof submission;
  submission.op = HVD_ALLREDUCE;
  submission.reduce_op = HVD_SUM;
  submission.name = name;
  submission.device = HVD_CPU;
  submission.tensor_count = 1;
  submission.tensors = &tensor;
  int code = hvd_submit(&submission, &handle, error, sizeof error);
  if (code != HVD_OK) return code;
  code = hvd_wait(handle, 30, error, sizeof error);
  hvd_release(handle, error, 0);
  return code;
}

static int sum(const char* name, float* value) { return sums(name, value, 1); }

static int add_up(void) {
  for (int step = 0; step < 100; ++step) {
    float value = (float)(hvd_rank() + 1);
    if (sum("value", &value) != HVD_OK) return wrong("allreduce");
    const int size = hvd_size();
    if (value != (float)(size * (size + 1) / 2)) return wrong("the sum is wrong");
  }
  printf("%d of %d, %d of %d here\n", hvd_rank(), hvd_size(), hvd_local_rank(), hvd_local_size());
  return 0;
}

/* Prints a hash of the bits of each sum, so that the sums of two jobs can be compared. */
static int hash_sums(int steps) {
  enum { kCount = 3000 };
  static float values[kCount];
  for (int step = 0; step < steps; ++step) {
    uint32_t random = (uint32_t)(step * 64 + hvd_rank());
    for (int i = 0; i < kCount; ++i) {
      random = random * 1664525u + 1013904223u;
      values[i] = (float)(random >> 8) / 3;
    }
    if (sums("values", values, kCount) != HVD_OK) return wrong("allreduce");
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (size_t i = 0; i < sizeof values; ++i) {
      hash = (hash ^ ((const unsigned char*)values)[i]) * 1099511628211u;
    }
    printf("step %d %016llx\n", step, (unsigned long long)hash);
    fflush(stdout);
    usleep(5000);
  }
  return 0;
}

/* Prints its rank once all ranks have started, and continues until a signal ends it. */
static int steps_for_ever(void) {
  for (float value = 1;; value = 1) {
    static int said = 0;
    if (sum("value", &value) != HVD_OK) return wrong("allreduce");
    if (!said) printf("ready %d %ld\n", hvd_rank(), (long)getpid());
    if (!said) fflush(stdout);
    said = 1;
    usleep(500); /* like a small model's steps */
  }
}

static int start(void) { return hvd_init(NULL, error, sizeof error) == HVD_OK ? 0 : wrong("init"); }

static int finish(int result) {
  if (result != 0) return result;
  return hvd_shutdown(error, sizeof error) == HVD_OK ? 0 : wrong("shutdown");
}

static int again_and_again(int times) {
  for (int i = 0; i < times; ++i) {
    if (start() != 0 || add_up() != 0 || finish(0) != 0) return 1;
    fflush(stdout);
  }
  return 0;
}

/* ---- Leaks of 1000 starts and ends ---- */

static long entries_of(const char* folder) {
  long count = 0;
  DIR* open_folder = opendir(folder);
  while (readdir(open_folder) != NULL) ++count;
  closedir(open_folder);
  return count;
}

static long resident_kib(void) {
  long pages = 0, resident = 0;
  FILE* file = fopen("/proc/self/statm", "r");
  if (file != NULL && fscanf(file, "%ld %ld", &pages, &resident) != 2) resident = 0;
  if (file != NULL) fclose(file);
  return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

static int cycle(void) {
  float value = 1;
  if (start() != 0) return 1;
  if (sum("x", &value) != HVD_OK) return wrong("allreduce");
  return finish(0);
}

static int cycles(void) {
  long memory = 0, descriptors = 0, threads = 0;
  for (int i = 0; i < 1000; ++i) {
    if (i == 100) {
      memory = resident_kib();
      descriptors = entries_of("/proc/self/fd");
      threads = entries_of("/proc/self/task");
    }
    if (cycle() != 0) return 1;
  }
  printf("1000 cycles: %+ld KiB, %+ld descriptors, %+ld threads\n", resident_kib() - memory,
         entries_of("/proc/self/fd") - descriptors, entries_of("/proc/self/task") - threads);
  /* The allocator itself may keep up to 2 KiB per cycle. */
  return resident_kib() - memory < 2000 && entries_of("/proc/self/fd") == descriptors &&
                 entries_of("/proc/self/task") == threads
             ? 0
             : 1;
}

static int for_ever(void) {
  float value = 1;
  if (sum("first", &value) != HVD_OK) return wrong("allreduce");
  printf("running\n");
  fflush(stdout);
  for (;;) {
    value = 1;
    if (sum("again", &value) != HVD_OK) return wrong("allreduce");
  }
}

/* Rank 1 dies; the other ranks wait for it and print the error that they get. */
static int lose_a_rank(int by_signal) {
  float value = 1;
  if (sum("first", &value) != HVD_OK) return wrong("allreduce");
  if (hvd_rank() == 1) {
    if (by_signal) raise(SIGKILL);
    _exit(3);
  }
  if (sum("second", &value) == HVD_OK) return wrong("the sum without rank 1 came out");
  printf("%s\n", error);
  return 7;
}

/* Returns the port at the other end of a TCP socket, else 0. */
static int peer_port(int fd) {
  struct sockaddr_storage address;
  socklen_t size = sizeof address;
  if (getpeername(fd, (struct sockaddr*)&address, &size) != 0) return 0;
  if (address.ss_family == AF_INET) return ntohs(((struct sockaddr_in*)&address)->sin_port);
  if (address.ss_family == AF_INET6) return ntohs(((struct sockaddr_in6*)&address)->sin6_port);
  return 0;
}

/* Returns whether this process has a socket to a rank, or shared memory, open. */
static int has_links(void) {
  const char* store = getenv("HOROVOD_STORE");
  const int store_port = store != NULL ? atoi(strrchr(store, ':') + 1) : -1;
  char name[64], target[256];
  for (int fd = 3; fd < 256; ++fd) {
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    const ssize_t size = readlink(name, target, sizeof target - 1);
    if (size <= 0) continue;
    target[size] = '\0';
    if (strncmp(target, "/memfd:", 7) == 0 ||
        (strncmp(target, "socket:", 7) == 0 && peer_port(fd) != store_port)) {
      snprintf(error, sizeof error, "descriptor %d is %s to port %d", fd, target, peer_port(fd));
      return 1;
    }
  }
  return 0;
}

/* The runtime refuses calls of a forked child, which must not disturb the parent. */
static int use_in_child(void) {
  fflush(stdout);
  if (!has_links()) return wrong("the parent has no links to close");
  const pid_t child = fork();
  if (child == 0) {
    float value = 1;
    if (has_links()) _exit(wrong("the child has a link of its parent's"));
    const int code = sum("child", &value);
    const int told = code == HVD_FAILED_PRECONDITION && strstr(error, "fork") != NULL;
    if (hvd_shutdown(error, sizeof error) != HVD_OK) _exit(1);
    _exit(told && hvd_is_initialized() == 0 ? 0 : 1);
  }
  int status = 1;
  if (waitpid(child, &status, 0) != child || status != 0) return wrong("the child");
  return add_up();
}

int main(int argc, char** argv) {
  const char* what = argc > 1 ? argv[1] : "";
  if (strcmp(what, "again-and-again") == 0) return again_and_again(argc > 2 ? atoi(argv[2]) : 20);
  if (strcmp(what, "cycles") == 0) return cycles();
  if (start() != 0) return 1;
  if (strcmp(what, "for-ever") == 0) return for_ever();
  if (strcmp(what, "sum") == 0) return finish(add_up());
  if (strcmp(what, "sum-and-exit") == 0) return add_up();
  if (strcmp(what, "steps-for-ever") == 0) return steps_for_ever();
  if (strcmp(what, "lose-by-exit") == 0) return lose_a_rank(0);
  if (strcmp(what, "lose-by-signal") == 0) return lose_a_rank(1);
  if (strcmp(what, "hash-sums") == 0) return finish(hash_sums(argc > 2 ? atoi(argv[2]) : 1));
  if (strcmp(what, "fork") == 0) return finish(use_in_child());
  return wrong("what?");
}
