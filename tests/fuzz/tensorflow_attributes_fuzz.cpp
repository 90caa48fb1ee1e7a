// The attributes of one of our operations in a graph of TensorFlow, which may come from a file. Each number is eight
// bytes; a list or a text has its length in one byte. Names of nodes are texts.
#include <algorithm>
#include <cstring>
#include <string>

#include "fuzz/target.h"
#include "python/tensorflow_ops/attributes.h"

namespace hvd::tensorflow {
namespace {

// The graph that TensorFlow has read. Global, because the API's functions take no argument of the
// test.
struct Graph {
  const uint8_t* data;
  size_t size;
  int code = kOk;
  int failures = 0;
  uint8_t byte() {
    if (size == 0) return 0;
    --size;
    return *data++;
  }
};
Graph* graph = nullptr;

TfApi api_of_graph() {
  TfApi api{};
  api.new_status = [] { return reinterpret_cast<Status*>(graph); };
  api.delete_status = [](Status*) {};
  api.get_code = [](const Status*) { return graph->code; };
  api.set_status = [](Status*, int code, const char*) { graph->code = code; };
  api.construction_failure = [](Construction*, Status*) { ++graph->failures; };
  api.number = [](Construction*, const char*, int64_t* value, Status*) {
    uint64_t bits = 0;
    for (int i = 0; i < 8; ++i) bits = bits << 8 | graph->byte();
    std::memcpy(value, &bits, sizeof *value);
  };
  api.string_size = [](Construction*, const char*, int32_t* list, int32_t* total, Status*) {
    *list = *total = graph->byte() - 128;
  };
  api.numbers = [](Construction*, const char*, int64_t* values, int size, Status*) {
    for (int i = 0; i < size; ++i) values[i] = graph->byte() - 128;
  };
  api.string = [](Construction*, const char*, char* value, size_t size, Status*) {
    for (size_t i = 0; i < size; ++i) value[i] = static_cast<char>(graph->byte());
  };
  return api;
}

void read_all() {
  const TfApi api = api_of_graph();
  Attributes attributes(api, nullptr);
  (void)attributes.number("process_set");
  const std::string made = attributes.text("node"), running = attributes.text("running");
  const std::string calls = calls_of(running, made);
  HVD_CHECK(calls.size() <= running.size() && (calls.empty() || calls.back() == '/'));
  (void)attributes.factor("prescale_bits");
  const size_t count = attributes.count("T");
  const auto shapes = shapes_of(attributes.numbers("shapes"), count);
  HVD_CHECK(shapes.empty() || shapes.size() == count);
  for (const Shape& shape : shapes) {
    HVD_CHECK(std::all_of(shape.begin(), shape.end(), [](int64_t extent) { return extent >= 0; }));
  }
}

}  // namespace
}  // namespace hvd::tensorflow

HVD_FUZZ_TARGET(tensorflow_attributes) {
  using namespace hvd::tensorflow;
  Graph own{data, size};
  graph = &own;
  read_all();
  HVD_CHECK(own.failures == (own.code == kOk ? 0 : 1));
}
