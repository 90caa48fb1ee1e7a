// The state of CUDA in this process. Any thread may call.
#pragma once

namespace hvd::test_double {

constexpr int kIllegalAddress = 700;  // the error of a kernel that failed

// Begins every CUDA function. Returns 0, or the error that the function must return: CUDA does not work in a
// forked child, inside a host function, or after a failed kernel. The first call initialises CUDA.
int begin_call(const char* function);
// A failing CUDA function calls this: a thread keeps its last error until cudaGetLastError takes
// it, and PyTorch raises it after its next kernel. Returns the error.
int remember(int error);
// Returns the number of devices. The first call reads CUDA_VISIBLE_DEVICES.
int count_devices();
// Returns the number of a visible device among all devices of the host.
int number_on_host(int device);
// Returns whether a device's compute mode refuses this process: HVD_DOUBLE_EXCLUDED names the device.
bool is_excluded(int device);
// Creates a context on the device for a call that needs one.
void use_device(int device);

// Marks a kernel as failed: every later call returns the error, and no host function runs.
void fail_kernel();
bool has_kernel_failed();

// Marks this thread as running a host function.
class HostFunction {
 public:
  HostFunction();
  ~HostFunction();
  HostFunction(const HostFunction&) = delete;
};

}  // namespace hvd::test_double
