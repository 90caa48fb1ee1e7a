// A gradient bucket: the gradients of many parameters as one request. Shared by gradient_bucket.cpp
// and gradient_bucket_run.cpp.
#pragma once

#include <vector>

#include "dense.h"

namespace hvd::python {

struct BucketSlot {
  // The address in the packed memory; for a separate tensor, the memory that replaces a gradient which cannot be
  // reduced in place, or NULL if not needed yet.
  char* place = nullptr;
  int64_t count = 0;             // number of elements
  bool apart = false;            // a separate tensor of the request
  void* outside = nullptr;       // address of the gradient if it is outside of `place`
  const void* object = nullptr;  // the gradient of the last step; used only to compare identities

  void* data() const { return outside != nullptr ? outside : place; }
};

struct GradientBucket {
  char* memory = nullptr;  // holds the packed gradients
  int64_t packed = 0;      // elements in `memory`
  int32_t dtype = 0;
  size_t element = 0;
  std::vector<BucketSlot> slots;
  // Tensors of the request. A member, so that a step allocates no memory for this list.
  std::vector<hvd_tensor> tensors;

  size_t bytes(const BucketSlot& slot) const { return static_cast<size_t>(slot.count) * element; }
};

// The Python lists of a bucket, one entry per slot. Borrowed for the call.
struct BucketLists {
  PyObject* params = nullptr;
  PyObject* residents = nullptr;  // gradients whose memory is their own slot, or None
  PyObject* held = nullptr;       // receives the gradients
  PyObject* keep = nullptr;       // a list of the objects that must stay alive during the reduction
  Framework framework{};

  bool read(PyObject* lists);
};

// Returns NULL with an exception set if the object is not a bucket.
GradientBucket* bucket_of(PyObject* capsule);

// Gathers as bucket_gather (module.cpp) does, and returns its result.
PyObject* gather(ModuleState* state, GradientBucket* bucket, const BucketLists& lists);
void scatter(const GradientBucket& bucket);

}  // namespace hvd::python
