// Sums numbers over all ranks through the C ABI of libhorovod, from Rust.
use std::ffi::{c_char, c_double, c_int, c_void, CStr};
use std::ptr::null;

#[repr(C)]
#[rustfmt::skip]
struct Tensor { name: *const c_char, dtype: i32, ndim: i32, shape: *const i64,
                input: *const c_void, output: *mut c_void }
#[repr(C)]
#[rustfmt::skip]
struct Submission { struct_size: usize, op: i32, reduce_op: i32, name: *const c_char,
                    process_set: i32, root_rank: i32, device: i32, flags: i32,
                    prescale: f64, postscale: f64, stream: *mut c_void, ready_event: *mut c_void,
                    tensor_count: u32, split_count: u32, tensors: *const Tensor, splits: *const i32 }
const ALLREDUCE: i32 = 0;
const SUM: i32 = 1;
const FLOAT64: i32 = 8;
const CPU: i32 = -1;

#[link(name = "horovod")]
extern "C" {
    fn hvd_init(options: *const c_void, error: *mut c_char, size: usize) -> c_int;
    fn hvd_shutdown(error: *mut c_char, size: usize) -> c_int;
    fn hvd_rank() -> i32;
    fn hvd_size() -> i32;
    fn hvd_submit(work: *const Submission, handle: *mut u64, error: *mut c_char, size: usize) -> c_int;
    fn hvd_wait(handle: u64, seconds: c_double, error: *mut c_char, size: usize) -> c_int;
    fn hvd_release(handle: u64, error: *mut c_char, size: usize) -> c_int;
}

fn check(call: impl FnOnce(*mut c_char, usize) -> c_int) {
    let mut error = [0 as c_char; 512];
    let status = call(error.as_mut_ptr(), error.len());
    let sentence = unsafe { CStr::from_ptr(error.as_ptr()) };
    assert!(status == 0, "{}", sentence.to_string_lossy());
}

fn main() {
    check(|error, size| unsafe { hvd_init(null(), error, size) });
    let (rank, ranks) = unsafe { (hvd_rank(), hvd_size()) };
    let mut numbers = [1.0, f64::from(rank)]; // reduced in place
    let place: *mut c_void = numbers.as_mut_ptr().cast();
    let tensor = Tensor { name: null(), dtype: FLOAT64, ndim: 1, shape: &2, input: place, output: place };
    let mut work: Submission = unsafe { std::mem::zeroed() };
    work.struct_size = std::mem::size_of::<Submission>();
    (work.op, work.reduce_op, work.device) = (ALLREDUCE, SUM, CPU);
    (work.name, work.tensor_count, work.tensors) = (b"numbers\0".as_ptr().cast(), 1, &tensor);
    let mut handle = 0;
    check(|error, size| unsafe { hvd_submit(&work, &mut handle, error, size) });
    check(|error, size| unsafe { hvd_wait(handle, -1.0, error, size) });
    check(|error, size| unsafe { hvd_release(handle, error, size) });
    println!("rank {rank} of {ranks}: the sums are {} and {}", numbers[0], numbers[1]);
    check(|error, size| unsafe { hvd_shutdown(error, size) });
}
