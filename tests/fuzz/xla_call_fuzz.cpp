// The call of one of our operations in a compiled program of JAX, which may come from a file: its
// attributes and the types of its buffers. The first byte is the number of attributes. Each is a
// type, a name of up to 15 bytes after its length, and a value: an element type and eight bytes, or
// a text. Buffers follow, each with an element type and dimensions.
#include <algorithm>
#include <deque>
#include <string>
#include <vector>

#include "fuzz/target.h"
#include "python/jax_ops/request.h"

namespace {

using namespace hvd::jax;

class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  bool is_over() const { return size_ == 0; }
  uint8_t byte() {
    if (size_ == 0) return 0;
    --size_;
    return *data_++;
  }
  std::string text(size_t most) {
    std::string text(std::min<size_t>(byte() % (most + 1), size_), '\0');
    for (char& c : text) c = static_cast<char>(byte());
    return text;
  }
  uint64_t eight() {
    uint64_t value = 0;
    for (int i = 0; i < 8; ++i) value = value << 8 | byte();
    return value;
  }

 private:
  const uint8_t* data_;
  size_t size_;
};

struct Attribute {
  std::string name, text;
  uint64_t value;
  FfiBytes name_bytes, text_bytes;
  FfiScalar scalar;
};

}  // namespace

HVD_FUZZ_TARGET(xla_call) {
  Input input(data, size);
  std::deque<Attribute> attributes;
  std::vector<int32_t> types;
  std::vector<FfiBytes*> names;
  std::vector<void*> items;
  for (int left = input.byte() % 16; left > 0; --left) {
    Attribute& one = attributes.emplace_back();
    types.push_back(input.byte() % 6);
    one.name = input.text(15);
    one.name_bytes = {one.name.data(), one.name.size()};
    names.push_back(&one.name_bytes);
    one.scalar = {input.byte() % 20, &one.value};
    if (types.back() == kFfiScalar) {
      one.value = input.eight();
      items.push_back(&one.scalar);
    } else {
      one.text = input.text(64);
      one.text_bytes = {one.text.data(), one.text.size()};
      items.push_back(&one.text_bytes);
    }
  }
  std::deque<std::vector<int64_t>> shapes;
  std::deque<FfiBuffer> buffers;
  std::vector<void*> arguments;
  while (!input.is_over() && arguments.size() < 8) {
    const int32_t dtype = input.byte() % 20;
    auto& shape = shapes.emplace_back();
    for (int left = input.byte() % 5; left > 0; --left) shape.push_back(input.byte());
    buffers.push_back({sizeof(FfiBuffer), nullptr, dtype, nullptr,
                       static_cast<int64_t>(shape.size()), shape.data()});
    arguments.push_back(&buffers.back());
  }
  FfiCall call{};
  call.struct_size = sizeof call;
  call.attributes = {sizeof call.attributes, nullptr,      static_cast<int64_t>(types.size()),
                     types.data(),           names.data(), items.data()};
  call.arguments = {sizeof call.arguments, nullptr, static_cast<int64_t>(arguments.size()), nullptr,
                    arguments.data()};
  call.results = call.arguments;
  const XlaRequest request = read_request(call);
  if (!request.problem.empty()) return;
  const hvd_submission submission = request.submission();
  HVD_CHECK(submission.op >= 0 && submission.tensor_count == arguments.size());
  for (size_t i = 0; i < arguments.size(); ++i) {
    const hvd_tensor& tensor = submission.tensors[i];
    HVD_CHECK(size_of(tensor.dtype) > 0 && tensor.ndim == buffers[i].rank);
    (void)bytes_of(buffers[i]);
  }
}
