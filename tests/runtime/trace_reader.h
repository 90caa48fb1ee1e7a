// Reads a timeline's file strictly: JSON, an array, events that nest.
#pragma once

#include <doctest/doctest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace hvd::test {

struct Trace {
  std::vector<nlohmann::json> events;
  std::map<int, std::string> names;  // name of each pid
  // The events by tensor name and rank: "B ALLREDUCE", "X 1", "E", "E float32 [2, 3]".
  std::map<std::pair<std::string, int>, std::vector<std::string>> sequences;
  size_t open = 0;  // events without an end

  std::vector<std::string> of(const std::string& tensor, int rank) const {
    const auto found = sequences.find({tensor, rank});
    return found == sequences.end() ? std::vector<std::string>() : found->second;
  }
  size_t count(const std::string& name) const {
    size_t count = 0;
    for (const auto& event : events) count += event.value("name", "") == name ? 1 : 0;
    return count;
  }
};

inline std::string word_of(const nlohmann::json& event) {
  std::string word = event["ph"].get<std::string>();
  if (event.contains("name")) word += " " + event["name"].get<std::string>();
  if (event.contains("args")) {
    const auto& args = event["args"];
    if (args.contains("dtype")) {
      word += " " + args["dtype"].get<std::string>() + " " + args["shape"].get<std::string>();
    }
    if (args.contains("call")) word += " call " + std::to_string(args["call"].get<int>());
  }
  return word;
}

inline Trace parse_trace(const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  REQUIRE_MESSAGE(json.is_array(), "not JSON, or no array: " << text.substr(0, 300));
  Trace trace;
  std::map<std::pair<int, int>, std::pair<size_t, double>> open;  // per track: open events and time
  for (const auto& event : json) {
    REQUIRE(event.is_object());
    trace.events.push_back(event);
    const std::string phase = event.at("ph");
    const int pid = event.at("pid");
    if (phase == "M") {
      if (event.at("name") == "process_name") trace.names[pid] = event["args"].at("name");
      continue;
    }
    const int tid = event.at("tid");
    auto& [depth, last] = open[{pid, tid}];
    const double time = event.at("ts");
    CHECK(time >= last);
    last = time;
    if (phase == "B") ++depth;
    if (phase == "E") {
      REQUIRE(depth > 0);
      --depth;
    }
    REQUIRE(trace.names.contains(pid));
    trace.sequences[{trace.names[pid], tid}].push_back(word_of(event));
  }
  for (const auto& [thread, state] : open) trace.open += state.first;
  return trace;
}

inline Trace read_trace(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return parse_trace(text.str());
}

}  // namespace hvd::test
