// The gradients of many parameters as one request: what flat.cpp and flat_run.cpp share.
#pragma once

#include <vector>

#include "dense.h"

namespace hvd::python {

struct Slot {
  char* place = nullptr;    // in the packed memory; of a tensor apart, what stands for a gradient
                            // that is not usable where it lies, or NULL while there was none
  int64_t count = 0;        // elements
  bool apart = false;       // a tensor of the request by itself
  void* outside = nullptr;  // where the gradient lies, unless in its place
  const void* object = nullptr;  // the gradient of the last step, for its identity alone

  void* data() const { return outside != nullptr ? outside : place; }
};

struct Flat {
  char* memory = nullptr;  // packed
  int64_t packed = 0;      // elements there
  int32_t dtype = 0;
  size_t element = 0;
  std::vector<Slot> slots;
  std::vector<hvd_tensor> tensors;  // of the request, kept for their memory

  size_t bytes(const Slot& slot) const { return static_cast<size_t>(slot.count) * element; }
};

// What goes with it in Python, a list entry per slot; borrowed for the call.
struct FlatLists {
  PyObject* params = nullptr;
  PyObject* residents = nullptr;  // gradients that live in their slots, or None
  PyObject* held = nullptr;       // gets the gradients
  PyObject* keep = nullptr;       // a list of what must stay alive while they are reduced
  Framework framework{};

  bool read(PyObject* lists);
};

// NULL with an exception set when it is none.
Flat* flat_of(PyObject* capsule);

// As flat_gather (module.cpp) returns.
PyObject* gather(State* state, Flat* flat, const FlatLists& lists);
void scatter(const Flat& flat);

}  // namespace hvd::python
