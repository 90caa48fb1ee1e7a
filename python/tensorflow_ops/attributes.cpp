#include "attributes.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace hvd::tensorflow {

Attributes::Attributes(const TfApi& api, Construction* construction)
    : api_(api), construction_(construction), status_(api.new_status()) {}

Attributes::~Attributes() {
  if (!is_fine()) api_.construction_failure(construction_, status_);
  api_.delete_status(status_);
}

bool Attributes::is_fine() const { return api_.get_code(status_) == kOk; }

int64_t Attributes::int64_number(const char* name) {
  int64_t value = 0;
  if (is_fine()) api_.number(construction_, name, &value, status_);
  return value;
}

int32_t Attributes::number(const char* name) {
  const int64_t value = int64_number(name);
  if (value >= std::numeric_limits<int32_t>::min() &&
      value <= std::numeric_limits<int32_t>::max()) {
    return static_cast<int32_t>(value);
  }
  const std::string text = std::string("the attribute ") + name + " is " + std::to_string(value) +
                           ", which is no number of 32 bits.";
  api_.set_status(status_, kInvalidArgument, text.c_str());
  return -1;
}

double Attributes::factor(const char* name) {
  const int64_t bits = int64_number(name);
  double value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

size_t Attributes::count(const char* name) {
  int32_t list = 0, total = 0;
  if (is_fine()) api_.string_size(construction_, name, &list, &total, status_);
  return static_cast<size_t>(list < 0 ? 0 : list);
}

std::vector<int64_t> Attributes::numbers(const char* name) {
  std::vector<int64_t> values(count(name));
  if (is_fine() && !values.empty()) {
    api_.numbers(construction_, name, values.data(), static_cast<int>(values.size()), status_);
  }
  return values;
}

std::string Attributes::text(const char* name) {
  int32_t list = 0, total = 0;
  if (is_fine()) api_.string_size(construction_, name, &list, &total, status_);
  std::vector<char> value(static_cast<size_t>(total < 0 ? 0 : total) + 1);
  if (is_fine() && value.size() > 1) {
    api_.string(construction_, name, value.data(), value.size() - 1, status_);
  }
  return std::string(value.data(), value.size() - 1);
}

std::vector<Shape> shapes_of(const std::vector<int64_t>& numbers, size_t count) {
  std::vector<Shape> shapes;
  for (auto at = numbers.begin(); at != numbers.end();) {
    const int64_t dimensions = *at++;
    if (dimensions < 0 || dimensions > numbers.end() - at) return {};
    if (std::any_of(at, at + dimensions, [](int64_t extent) { return extent < 0; })) return {};
    shapes.emplace_back(at, at + dimensions);
    at += dimensions;
  }
  return shapes.size() == count ? shapes : std::vector<Shape>();
}

namespace {

// Returns "call/name_0" as "call/name".
std::string_view without_number(std::string_view name) {
  const size_t last = name.find_last_not_of("0123456789");
  const bool has_number = last != std::string_view::npos && last + 1 < name.size();
  return has_number && name[last] == '_' ? name.substr(0, last) : name;
}

}  // namespace

std::string calls_of(std::string_view running, std::string_view made) {
  if (!running.ends_with(made)) running = without_number(running);
  if (made.empty() || running.size() <= made.size() || !running.ends_with(made)) return {};
  std::string calls;
  running.remove_suffix(made.size());
  for (size_t end; (end = running.find('/')) != std::string_view::npos;
       running.remove_prefix(end + 1)) {
    const std::string_view part = running.substr(0, end);
    const bool is_counter = part.size() > 1 && part[0] == '_' &&
                            part.find_first_not_of("0123456789", 1) == std::string_view::npos;
    if (!is_counter) calls.append(part).push_back('/');
  }
  return calls;
}

}  // namespace hvd::tensorflow
