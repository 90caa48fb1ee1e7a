// The state of CUDA in this process. Any thread.
#pragma once

namespace hvd::test_double {

constexpr int kIllegalAddress = 700;  // the error of a kernel that failed

// Each function of CUDA begins with it. 0, or the error that the function must return: CUDA does not work in
// a child by fork, inside of a host function, or after a kernel failed. The first call initialises CUDA.
int begin_call(const char* function);
// Every function of CUDA that fails calls it: a thread keeps its last error until cudaGetLastError takes it,
// and PyTorch raises it after its next kernel. Returns the error.
int remember(int error);
// The number of devices. CUDA_VISIBLE_DEVICES is read by the first call.
int count_devices();
// The number of a visible device among all of the host.
int number_on_host(int device);
// Whether the compute mode of a device refuses this process: HVD_DOUBLE_EXCLUDED names it.
bool is_excluded(int device);
// A call that needs a context on the device makes one.
void use_device(int device);

// A kernel failed: every later call returns the error, and no host function runs.
void fail_kernel();
bool has_kernel_failed();

// This thread runs a host function.
class HostFunction {
 public:
  HostFunction();
  ~HostFunction();
  HostFunction(const HostFunction&) = delete;
};

}  // namespace hvd::test_double
