#include "base/process/exec_strings.h"

#include "base/text.h"

namespace hvd {

std::vector<std::string> environment_strings(
    const std::vector<std::pair<std::string, std::string>>& environment) {
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
