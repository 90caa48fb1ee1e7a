#include "base/process/exec_strings.h"

#include "base/text.h"

namespace hvd {

Environment overlay(Environment base, const Environment& over) {
  for (const auto& [name, value] : over) {
    bool is_there = false;
    for (auto& [old_name, old_value] : base) {
      if (old_name != name) continue;
      old_value = value;
      is_there = true;
    }
    if (!is_there) base.emplace_back(name, value);
  }
  return base;
}

std::vector<std::string> environment_strings(const Environment& environment) {
  std::vector<std::string> texts;
  texts.reserve(environment.size());
  for (const auto& [name, value] : environment) texts.push_back(cat(name, "=", value));
  return texts;
}

std::vector<char*> pointers_to(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.data()));
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace hvd
