// Reads a member of a C record that grows at its tail. A record made by an older binary may lack the member.
#pragma once

namespace hvd {

// Returns the member; 0 or nullptr if the record ends before the member.
template <typename Record, typename Field>
Field field_of(const Record& record, Field Record::*field) {
  const auto* const end = reinterpret_cast<const char*>(&(record.*field) + 1);
  return end <= reinterpret_cast<const char*>(&record) + record.struct_size ? record.*field
                                                                            : Field{};
}

}  // namespace hvd
