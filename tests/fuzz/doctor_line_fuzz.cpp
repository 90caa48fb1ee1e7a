// Each line is the output of one of four hosts, which an attacker may have taken over. No line makes the launcher fail.
#include <string>
#include <utility>

#include "base/text.h"
#include "fuzz/target.h"
#include "launcher/doctor/report.h"

HVD_FUZZ_TARGET(doctor_line) {
  using namespace hvd;
  using namespace hvd::launcher;
  Diagnosis diagnosis{.level = "net", .hosts = std::vector<HostFacts>(4)};
  size_t number = 0;
  for (const std::string& line : split(text, '\n')) {
    HostFacts& host = diagnosis.hosts[number++ % 4];
    host.host = cat("h", number % 4);
    auto parsed = parse_doctor_line(line);
    if (!parsed.ok()) continue;
    if (parsed->facts) host.facts = *parsed->facts;
    if (parsed->pair && parsed->pair->from < 4 && parsed->pair->to < 4)
      diagnosis.pairs.push_back(*std::move(parsed->pair));
  }
  judge(diagnosis);
  HVD_CHECK(!diagnosis_text(diagnosis).empty());
  HVD_CHECK(nlohmann::json::parse(diagnosis_json(diagnosis), nullptr, false).is_object());
}
