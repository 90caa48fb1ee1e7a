// Attributes of clang's thread-safety analysis. Builds by clang treat a breach as an error; other
// compilers ignore them.
#pragma once

#if defined(__clang__)
#define HVD_THREAD_SAFETY(attribute) __attribute__((attribute))
#else
#define HVD_THREAD_SAFETY(attribute)
#endif
#define HVD_GUARDED_BY(mutex) HVD_THREAD_SAFETY(guarded_by(mutex))
#define HVD_REQUIRES(mutex) HVD_THREAD_SAFETY(requires_capability(mutex))
// After a function that returns a reference to the mutex.
#define HVD_RETURNS_MUTEX(mutex) HVD_THREAD_SAFETY(lock_returned(mutex))
