// Attributes of clang's thread-safety analysis. In clang builds a violation is an error; other
// compilers ignore the attributes.
#pragma once

#if defined(__clang__)
#define HVD_THREAD_SAFETY(attribute) __attribute__((attribute))
#else
#define HVD_THREAD_SAFETY(attribute)
#endif
#define HVD_GUARDED_BY(mutex) HVD_THREAD_SAFETY(guarded_by(mutex))
#define HVD_REQUIRES(mutex) HVD_THREAD_SAFETY(requires_capability(mutex))
// Write this after a function that returns a reference to the mutex.
#define HVD_RETURNS_MUTEX(mutex) HVD_THREAD_SAFETY(lock_returned(mutex))
