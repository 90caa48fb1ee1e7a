// Formats what horovodrun doctor has found: numbered findings, a matrix of the links, and JSON. Pure.
#pragma once

#include <string>
#include <vector>

#include "launcher/doctor/findings.h"

namespace hvd::launcher {

struct Diagnosis {
  std::string level{};
  std::vector<HostFacts> hosts{};
  std::vector<PairResult> pairs{};
  std::vector<Finding> findings{};  // failures first
  double seconds = 0;
};

// Judges hosts and pairs, and sorts the findings.
void judge(Diagnosis& diagnosis);
bool has_failures(const Diagnosis& diagnosis);

// Returns a sentence for each finding, "host c: /dev/shm has 12M free; remove files there ...". Findings that differ
// only in the host share a sentence.
std::vector<std::string> finding_sentences(const Diagnosis& diagnosis);

// Returns the numbered findings, the matrix of the links, and "ready" or "not ready".
std::string diagnosis_text(const Diagnosis& diagnosis);
// Returns one line: {"version", "level", "verdict", "hosts": {NAME: {"facts", "checks": [...]}}, "pairs": [...]}.
std::string diagnosis_json(const Diagnosis& diagnosis);

}  // namespace hvd::launcher
