// This project's own declarations of the part of XLA's FFI that the handler uses. XLA's c_api.h, major version 0,
// guarantees the layout: records grow only at their ends. (The XLA of JAX 0.5 passes a too small `struct_size` in
// FfiApi; Python therefore reads the version in the header that JAX ships.)
#pragma once

#include <cstddef>
#include <cstdint>

namespace hvd::jax {

constexpr int kFfiMajor = 0;
// The newest version whose header was checked; XLA accepts handlers of older versions.
constexpr int kFfiMinor = 3;

struct FfiError;   // opaque
struct FfiFuture;  // opaque

struct FfiExtension {
  size_t struct_size;
  int32_t type;
  FfiExtension* next;
};
constexpr int32_t kFfiMetadataExtension = 1;

struct FfiVersion {
  size_t struct_size;
  FfiExtension* extension;
  int32_t major, minor;
};

struct FfiMetadata {
  size_t struct_size;
  FfiVersion version;
  uint32_t traits;
};

struct FfiMetadataExtension {
  FfiExtension base;
  FfiMetadata* metadata;
};

struct FfiErrorCreate {
  size_t struct_size;
  FfiExtension* extension;
  const char* message;
  int32_t code;
};
enum FfiCode { kFfiInvalidArgument = 3, kFfiUnimplemented = 12, kFfiInternal = 13 };

struct FfiFutureCreate {
  size_t struct_size;
  FfiExtension* extension;
  FfiFuture* future;  // output
};

struct FfiFutureSetAvailable {
  size_t struct_size;
  FfiExtension* extension;
  FfiFuture* future;
};

struct FfiFutureSetError {
  size_t struct_size;
  FfiExtension* extension;
  FfiFuture* future;
  FfiError* error;  // XLA owns the error after the call
};

struct FfiApi {
  size_t struct_size;
  FfiExtension* extension;
  FfiVersion version;
  const void* internal;
  FfiError* (*error_create)(FfiErrorCreate*);
  void* unused[12];  // for messages and ends of errors, registration, contexts, memory and threads
  FfiError* (*future_create)(FfiFutureCreate*);
  FfiError* (*future_set_available)(FfiFutureSetAvailable*);
  FfiError* (*future_set_error)(FfiFutureSetError*);
};

struct FfiBuffer {
  size_t struct_size;
  FfiExtension* extension;
  int32_t dtype;
  void* data;
  int64_t rank;
  int64_t* dims;
};

// Arguments, or results. `items` are FfiBuffers.
struct FfiValues {
  size_t struct_size;
  FfiExtension* extension;
  int64_t size;
  int32_t* types;
  void** items;
};

struct FfiBytes {
  const char* data;
  size_t size;
};

enum FfiAttribute { kFfiScalar = 3, kFfiString = 4 };

struct FfiScalar {
  int32_t dtype;
  void* value;
};

struct FfiAttributes {
  size_t struct_size;
  FfiExtension* extension;
  int64_t size;
  int32_t* types;    // FfiAttribute
  FfiBytes** names;  // sorted
  void** items;      // FfiScalar or FfiBytes
};

struct FfiCall {
  size_t struct_size;
  FfiExtension* extension;
  const FfiApi* api;
  void* context;
  int32_t stage;
  FfiValues arguments;
  FfiValues results;
  FfiAttributes attributes;
  FfiFuture* future;  // output: completes the call; XLA keeps the call's data until then
};
constexpr int32_t kFfiExecute = 3;

}  // namespace hvd::jax
