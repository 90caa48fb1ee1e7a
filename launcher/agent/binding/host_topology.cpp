#include "launcher/agent/binding/host_topology.h"

#include <hwloc.h>
#include <stdlib.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>

#include "base/settings.h"

namespace hvd::launcher {
namespace {

struct Destroy {
  void operator()(hwloc_topology* topology) const { ::hwloc_topology_destroy(topology); }
};
using Loaded = std::unique_ptr<hwloc_topology, Destroy>;

std::vector<int> cpus_in(hwloc_const_cpuset_t set, const std::vector<int>& allowed) {
  std::vector<int> cpus;
  for (const int cpu : allowed) {
    if (::hwloc_bitmap_isset(set, static_cast<unsigned>(cpu))) cpus.push_back(cpu);
  }
  return cpus;
}

// The memory of a GPU or another device may be a NUMA node without CPUs: hwloc then lists it with the CPUs of a larger
// object. The core's own node is therefore the node with the fewest CPUs. Among equal nodes, the first has the ordinary
// memory.
int node_of(hwloc_topology* loaded, hwloc_const_cpuset_t cpus) {
  int number = -1, size = 0;
  for (hwloc_obj_t node = nullptr;
       (node = ::hwloc_get_next_obj_by_type(loaded, HWLOC_OBJ_NUMANODE, node)) != nullptr;) {
    if (!::hwloc_bitmap_isincluded(cpus, node->cpuset)) continue;
    const int weight = ::hwloc_bitmap_weight(node->cpuset),
              index = static_cast<int>(node->os_index);
    if (size != 0 && (weight > size || (weight == size && index > number))) continue;
    number = index;
    size = weight;
  }
  return number;
}

// Returns true for 3D controllers, for displays of NVIDIA and AMD, and for AMD's accelerators. The display of another
// vendor may be a server's management controller.
bool is_gpu(unsigned kind, unsigned vendor) {
  constexpr unsigned kNvidia = 0x10de, kAmd = 0x1002;
  constexpr unsigned kVga = 0x0300, k3d = 0x0302, kDisplay = 0x0380, kAccelerator = 0x1200;
  if (kind == kVga || kind == kDisplay) return vendor == kNvidia || vendor == kAmd;
  return kind == k3d || (kind == kAccelerator && vendor == kAmd);
}

std::vector<Gpu> gpus_of(hwloc_topology* loaded, const std::vector<int>& allowed) {
  std::vector<Gpu> gpus;
  for (hwloc_obj_t device = nullptr;
       (device = ::hwloc_get_next_pcidev(loaded, device)) != nullptr;) {
    const auto& pci = device->attr->pcidev;
    if (!is_gpu(pci.class_id, pci.vendor_id)) continue;
    char address[32];
    std::snprintf(address, sizeof address, "%04x:%02x:%02x.%01x", pci.domain, pci.bus, pci.dev,
                  pci.func);
    const hwloc_obj_t place = ::hwloc_get_non_io_ancestor_obj(loaded, device);
    gpus.push_back({address, cpus_in(place->cpuset, allowed)});
  }
  std::ranges::sort(gpus, {}, &Gpu::address);
  return gpus;
}

}  // namespace

HostTopology convert(hwloc_topology* loaded, const std::vector<int>& allowed) {
  HostTopology topology;
  // Some virtual machines have no cores, only threads.
  const bool has_cores = ::hwloc_get_nbobjs_by_type(loaded, HWLOC_OBJ_CORE) > 0;
  const hwloc_obj_type_t type = has_cores ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
  for (hwloc_obj_t each = nullptr;
       (each = ::hwloc_get_next_obj_by_type(loaded, type, each)) != nullptr;) {
    Core core{.cpus = cpus_in(each->cpuset, allowed)};
    if (core.cpus.empty()) continue;
    const hwloc_obj_t socket = ::hwloc_get_ancestor_obj_by_type(loaded, HWLOC_OBJ_PACKAGE, each);
    core.socket = socket == nullptr ? 0 : static_cast<int>(socket->logical_index);
    core.node = node_of(loaded, each->cpuset);
    core.kind = std::max(0, ::hwloc_cpukinds_get_by_cpuset(loaded, each->cpuset, 0));
    topology.cores.push_back(std::move(core));
  }
  topology.gpus = gpus_of(loaded, allowed);
  return topology;
}

Result<HostTopology> read_host_topology(const std::vector<int>& allowed) {
  // The user's shell may set variables of hwloc for another topology, or for plugins, which a static program cannot
  // open.
  for (const char* variable : {"HWLOC_XMLFILE", "HWLOC_SYNTHETIC", "HWLOC_FSROOT",
                               "HWLOC_CPUID_PATH", "HWLOC_ALLOW", "HWLOC_THISSYSTEM"})
    forget_environment_variable(variable);
  // Otherwise, messages of hwloc about firmware would be the agent's last words.
  ::setenv("HWLOC_HIDE_ERRORS", "2", 1);
  ::setenv("HWLOC_PLUGINS_PATH", "", 1);
  ::setenv("HWLOC_COMPONENTS", "linux,stop", 1);
  hwloc_topology_t made = nullptr;
  if (::hwloc_topology_init(&made) != 0)
    return system_error("cannot read the host's topology", errno);
  const Loaded topology(made);
  ::hwloc_topology_set_io_types_filter(made, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  if (::hwloc_topology_load(made) != 0)
    return system_error("cannot read the host's topology", errno);
  return convert(made, allowed);
}

}  // namespace hvd::launcher
