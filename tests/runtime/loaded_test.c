/* Opens libhorovod.so at run time, after other libraries that export its internal names:
 * loaded_test LIBHOROVOD local|global LIBRARY...  Skips missing libraries. Prints each failure and
 * returns 1. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "horovod/horovod.h"

static char error[512];

#define EXPECT(condition)                                                               \
  do {                                                                                  \
    if (!(condition)) {                                                                 \
      fprintf(stderr, "line %d: %s does not hold (%s)\n", __LINE__, #condition, error); \
      return 1;                                                                         \
    }                                                                                   \
  } while (0)

/* Stores a function of the library in a variable of its type. */
#define FIND(library, name)           \
  __typeof__(&name) name##_found = 0; \
  *(void**)&name##_found = dlsym(library, #name)

static int use(void* library) {
  FIND(library, hvd_init);
  FIND(library, hvd_submit);
  FIND(library, hvd_wait);
  FIND(library, hvd_release);
  FIND(library, hvd_shutdown);
  float value = 3;
  const hvd_tensor tensor = {NULL, HVD_FLOAT32, 0, NULL, &value, &value};
  hvd_submission submission;
  hvd_handle handle = 0;
  EXPECT(hvd_init_found && hvd_submit_found && hvd_wait_found && hvd_release_found);
  EXPECT(hvd_init_found(NULL, error, sizeof error) == HVD_OK);
  memset(&submission, 0, sizeof submission);
  submission.struct_size = sizeof submission;
  submission.op = HVD_ALLREDUCE;
  submission.reduce_op = HVD_SUM;
  submission.name = "value";
  submission.device = HVD_CPU;
  submission.postscale = 2;
  submission.tensor_count = 1;
  submission.tensors = &tensor;
  EXPECT(hvd_submit_found(&submission, &handle, error, sizeof error) == HVD_OK);
  EXPECT(hvd_wait_found(handle, 20, error, sizeof error) == HVD_OK);
  EXPECT(value == 6);
  EXPECT(hvd_release_found(handle, error, sizeof error) == HVD_OK);
  EXPECT(hvd_shutdown_found(error, sizeof error) == HVD_OK);
  return 0;
}

int main(int count, char** arguments) {
  EXPECT(count > 2);
  const int is_global = strcmp(arguments[2], "global") == 0;
  for (int i = 3; i < count; ++i) {
    if (dlopen(arguments[i], RTLD_NOW | RTLD_GLOBAL) == NULL) printf("without %s\n", dlerror());
  }
  void* others_hmac = dlsym(RTLD_DEFAULT, "HMAC");
  void* library = dlopen(arguments[1], RTLD_NOW | (is_global ? RTLD_GLOBAL : RTLD_LOCAL));
  if (library == NULL) fprintf(stderr, "%s\n", dlerror());
  EXPECT(library != NULL);
  if (use(library) != 0) return 1;
  /* The process has got only the symbols hvd_*. */
  EXPECT(dlsym(RTLD_DEFAULT, "HMAC") == others_hmac);
  EXPECT((dlsym(RTLD_DEFAULT, "hvd_init") != NULL) == is_global);
  return 0;
}
