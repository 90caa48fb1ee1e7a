// Encodes (put) and decodes (get) the fields of control messages. Only protocol.cpp calls it. Pure.
#pragma once

#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "launcher/protocol/host_job.h"
#include "launcher/protocol/token_proof.h"

namespace hvd::launcher {

using Variables = std::vector<std::pair<std::string, std::string>>;

void put(ByteWriter& to, const std::string& text);
void put(ByteWriter& to, const Proof& proof);
void put(ByteWriter& to, StageKind kind);
void put(ByteWriter& to, const Status& status);
void put(ByteWriter& to, const Variables& variables);
void put(ByteWriter& to, const std::vector<std::string>& words);
void put(ByteWriter& to, const HostJob& job);
void put(ByteWriter& to, const MasterCandidates& candidates);
void put(ByteWriter& to, const StartOrder& order);
void put(ByteWriter& to, const RankExit& exit);
template <typename T>
requires std::is_arithmetic_v<T>
void put(ByteWriter& to, T number) { to.put(number); }

// The reader's finish() reports truncated or wrong values.
void get(ByteReader& from, std::string& text);
void get(ByteReader& from, Proof& proof);
void get(ByteReader& from, StageKind& kind);
void get(ByteReader& from, Status& status);
void get(ByteReader& from, Variables& variables);
void get(ByteReader& from, std::vector<std::string>& words);
void get(ByteReader& from, HostJob& job);
void get(ByteReader& from, MasterCandidates& candidates);
void get(ByteReader& from, StartOrder& order);
void get(ByteReader& from, RankExit& exit);
template <typename T>
requires std::is_arithmetic_v<T>
void get(ByteReader& from, T& number) { number = from.get<T>(); }

}  // namespace hvd::launcher
