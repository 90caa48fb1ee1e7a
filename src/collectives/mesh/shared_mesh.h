// Shares the mesh of the built-in controller with the built-in backend of the same runtime. The controller
// publishes a SharedMesh pointer under kMeshName.
#pragma once

#include <memory>

#include "collectives/mesh/mesh.h"
#include "collectives/shm/shared_heap.h"

namespace hvd::collectives {

using SharedMesh = std::shared_ptr<Mesh>;
constexpr const char* kMeshName = "hvd.collectives.mesh.v1";
// The name under which the runtime publishes the SharedHeap of its process.
constexpr const char* kHeapName = "hvd.collectives.heap.v1";
// The name under which the runtime publishes the Interruption of hvd_init, if it has one.
constexpr const char* kInterruptionName = "hvd.collectives.interruption.v1";

}  // namespace hvd::collectives
