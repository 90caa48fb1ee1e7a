// Sums numbers over all ranks through the C ABI of libhorovod (horovod.h, types.h), from Rust.
use std::{ffi::CStr, mem, os::raw::*, ptr::null};

#[rustfmt::skip] #[repr(C)]
struct Tensor { name: *const c_char, dtype: i32, ndim: i32, shape: *const i64,
                input: *const c_void, output: *mut c_void }
#[rustfmt::skip] #[repr(C)]
struct Submission { struct_size: usize, op: i32, reduce_op: i32, name: *const c_char, process_set: i32,
                    root_rank: i32, device: i32, flags: i32, prescale: f64, postscale: f64,
                    stream: *mut c_void, ready_event: *mut c_void, tensor_count: u32,
                    split_count: u32, tensors: *const Tensor, splits: *const i32 }
#[link(name = "horovod")]
extern "C" {
    fn hvd_init(options: *const c_void, error: *mut c_char, size: usize) -> c_int;
    fn hvd_shutdown(error: *mut c_char, size: usize) -> c_int;
    fn hvd_rank() -> i32;
    fn hvd_submit(work: *const Submission, handle: *mut u64, error: *mut c_char, size: usize) -> c_int;
    fn hvd_wait(handle: u64, seconds: c_double, error: *mut c_char, size: usize) -> c_int;
    fn hvd_release(handle: u64, error: *mut c_char, size: usize) -> c_int;
}
fn check(call: impl FnOnce(*mut c_char, usize) -> c_int) {
    let mut error = [0; 512];
    let status = call(error.as_mut_ptr(), error.len());
    assert!(status == 0, "{}", unsafe { CStr::from_ptr(error.as_ptr()) }.to_string_lossy());
}
fn main() {
    check(|error, size| unsafe { hvd_init(null(), error, size) });
    let mut sums = [1.0, f64::from(unsafe { hvd_rank() })]; // reduced in place
    let place = sums.as_mut_ptr().cast::<c_void>();
    let tensor = Tensor { name: null(), dtype: 8 /* float64 */, ndim: 1, shape: &2, input: place, output: place };
    let mut work = Submission { device: -1 /* CPU */, tensors: &tensor, ..unsafe { mem::zeroed() } };
    (work.struct_size, work.name, work.tensor_count) = (mem::size_of_val(&work), b"sums\0".as_ptr().cast(), 1);
    (work.op, work.reduce_op) = (0 /* allreduce */, 1 /* sum */);
    let mut handle = 0;
    check(|error, size| unsafe { hvd_submit(&work, &mut handle, error, size) });
    check(|error, size| unsafe { hvd_wait(handle, -1.0, error, size) });
    check(|error, size| unsafe { hvd_release(handle, error, size) });
    println!("rank {} of {}: the sum of the ranks is {}", unsafe { hvd_rank() }, sums[0], sums[1]);
    check(|error, size| unsafe { hvd_shutdown(error, size) });
}
