#include "launcher/protocol/value_bytes.h"

#include <algorithm>

namespace hvd::launcher {

void put(ByteWriter& to, const std::string& text) { to.put_text(text); }
void put(ByteWriter& to, const Proof& proof) { to.put_raw(proof); }
void put(ByteWriter& to, StageKind kind) { to.put(static_cast<uint8_t>(kind)); }
void put(ByteWriter& to, const Status& status) {
  to.put(static_cast<int32_t>(status.code())).put_text(status.message());
}
void put(ByteWriter& to, const Variables& variables) {
  to.put(static_cast<uint32_t>(variables.size()));
  for (const auto& [name, value] : variables) to.put_text(name).put_text(value);
}

void get(ByteReader& from, std::string& text) { text = from.get_text(); }
void get(ByteReader& from, Proof& proof) {
  const ByteView raw = from.get_raw(proof.size());
  std::copy(raw.begin(), raw.end(), proof.begin());
}
void get(ByteReader& from, StageKind& kind) { kind = static_cast<StageKind>(from.get<uint8_t>()); }
void get(ByteReader& from, Status& status) {
  const auto code = from.get<int32_t>();
  std::string sentence = from.get_text();
  const bool is_known = code >= 0 && code <= static_cast<int32_t>(Code::kInternal);
  status = Status(is_known ? static_cast<Code>(code) : Code::kInternal, std::move(sentence));
}
void get(ByteReader& from, Variables& variables) {
  const uint32_t count = from.get_count(8);
  for (uint32_t i = 0; i < count && !from.failed(); ++i) {
    std::string name = from.get_text();
    std::string value = from.get_text();
    variables.emplace_back(std::move(name), std::move(value));
  }
}

void put(ByteWriter& to, const std::vector<std::string>& words) {
  to.put(static_cast<uint32_t>(words.size()));
  for (const std::string& word : words) to.put_text(word);
}
void get(ByteReader& from, std::vector<std::string>& words) {
  const uint32_t count = from.get_count(4);
  for (uint32_t i = 0; i < count && !from.failed(); ++i) words.push_back(from.get_text());
}

void put(ByteWriter& to, const HostJob& job) {
  to.put(job.job).put(job.generation).put(job.host).put(job.hosts).put_text(job.host_name);
  put(to, job.command);
  to.put_text(job.python).put_text(job.working_directory);
  put(to, job.environment);
  to.put(static_cast<uint32_t>(job.ranks.size()));
  for (const RankSpec& spec : job.ranks) {
    to.put(static_cast<int32_t>(spec.rank));
    put(to, spec.environment);
    to.put(static_cast<uint8_t>(spec.has_input));
  }
  to.put_text(job.remote_init).put(static_cast<uint8_t>(job.is_compared));
  to.put(static_cast<uint8_t>(job.is_staged)).put_text(job.staged_path);
  to.put(job.lease_seconds).put(job.kill_grace_seconds).put(job.leave_grace_seconds);
  to.put(static_cast<uint8_t>(job.insecure_compat)).put(static_cast<int32_t>(job.end_signal));
}
void get(ByteReader& from, HostJob& job) {
  job.job = from.get<uint64_t>();
  job.generation = from.get<uint32_t>();
  job.host = from.get<uint32_t>();
  job.hosts = from.get<uint32_t>();
  job.host_name = from.get_text();
  get(from, job.command);
  job.python = from.get_text();
  job.working_directory = from.get_text();
  get(from, job.environment);
  const uint32_t ranks = from.get_count(8);
  for (uint32_t i = 0; i < ranks && !from.failed(); ++i) {
    RankSpec spec;
    spec.rank = from.get<int32_t>();
    get(from, spec.environment);
    spec.has_input = from.get<uint8_t>() != 0;
    job.ranks.push_back(std::move(spec));
  }
  job.remote_init = from.get_text();
  job.is_compared = from.get<uint8_t>() != 0;
  job.is_staged = from.get<uint8_t>() != 0;
  job.staged_path = from.get_text();
  job.lease_seconds = from.get<double>();
  job.kill_grace_seconds = from.get<double>();
  job.leave_grace_seconds = from.get<double>();
  job.insecure_compat = from.get<uint8_t>() != 0;
  job.end_signal = from.get<int32_t>();
}

void put(ByteWriter& to, const MasterCandidates& candidates) {
  to.put(candidates.port).put_raw(candidates.nonce);
  put(to, candidates.addresses);
}
void get(ByteReader& from, MasterCandidates& candidates) {
  candidates.port = from.get<uint16_t>();
  get(from, candidates.nonce);
  get(from, candidates.addresses);
}

void put(ByteWriter& to, const StartOrder& order) {
  put(to, order.environment);
  to.put_text(order.interface);
}
void get(ByteReader& from, StartOrder& order) {
  get(from, order.environment);
  order.interface = from.get_text();
}

void put(ByteWriter& to, const RankExit& exit) {
  to.put(static_cast<int32_t>(exit.rank)).put(static_cast<int32_t>(exit.code));
  to.put(static_cast<int32_t>(exit.signal)).put(static_cast<uint8_t>(exit.by_agent));
  to.put(static_cast<uint8_t>(exit.after_grace)).put(static_cast<uint8_t>(exit.out_of_memory));
  to.put(exit.master_port_user ? static_cast<int64_t>(*exit.master_port_user) : int64_t{-1});
}
void get(ByteReader& from, RankExit& exit) {
  exit.rank = from.get<int32_t>();
  exit.code = from.get<int32_t>();
  exit.signal = from.get<int32_t>();
  exit.by_agent = from.get<uint8_t>() != 0;
  exit.after_grace = from.get<uint8_t>() != 0;
  exit.out_of_memory = from.get<uint8_t>() != 0;
  if (const auto user = from.get<int64_t>(); user >= 0) {
    exit.master_port_user = static_cast<uint32_t>(user);
  }
}

}  // namespace hvd::launcher
