#include "runtime/telemetry/trace_record.h"

#include <algorithm>

namespace hvd::runtime {
namespace {

constexpr size_t kMostDimensions = 255;

}  // namespace

void encode(const TraceName& name, ByteWriter& out) {
  out.put_text(std::string_view(name.text).substr(0, kLongestTraceName));
  out.put(name.process_set).put(name.op).put(static_cast<uint32_t>(name.tensors.size()));
  for (const TensorSpec& tensor : name.tensors) {
    const size_t ndim = std::min(tensor.shape.size(), kMostDimensions);
    out.put(static_cast<uint8_t>(tensor.dtype)).put(static_cast<uint8_t>(ndim));
    for (size_t i = 0; i < ndim; ++i) out.put(tensor.shape[i]);
  }
}

Status decode(ByteView bytes, TraceName* name) {
  ByteReader in(bytes);
  name->text = in.get_text();
  name->process_set = in.get<int32_t>();
  name->op = in.get<int32_t>();
  name->tensors.assign(in.get_count(2), {});
  for (TensorSpec& tensor : name->tensors) {
    tensor.dtype = in.get<uint8_t>();
    const size_t ndim = in.get<uint8_t>();
    if (ndim > in.left() / sizeof(int64_t)) return invalid_argument("a shape is cut short");
    tensor.shape.resize(ndim);
    for (int64_t& extent : tensor.shape) extent = in.get<int64_t>();
  }
  if (name->text.size() > kLongestTraceName) return invalid_argument("a name is too long");
  return in.finish("the meaning of a name");
}

}  // namespace hvd::runtime
