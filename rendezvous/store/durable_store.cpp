#include "rendezvous/store/durable_store.h"

#include "base/wire/value_bytes.h"

namespace hvd::rendezvous::records {
namespace {

void put_name(ByteWriter& writer, std::string_view name) {
  writer.put(static_cast<uint16_t>(name.size())).put_raw(as_bytes(name));
}

}  // namespace

std::string name(RecordKind kind, std::string_view rest) {
  return std::string(1, static_cast<char>(kind)).append(rest);
}

Bytes write_outcome(const OutcomeRecord& outcome) {
  return ByteWriter().put(outcome.sequence).put(static_cast<uint8_t>(outcome.swapped)).take();
}

Result<OutcomeRecord> read_outcome(ByteView record) {
  ByteReader reader(record);
  const auto sequence = reader.get<uint64_t>();
  const bool swapped = reader.get<uint8_t>() != 0;
  HVD_RETURN_IF_ERROR(reader.finish("a stored answer"));
  return OutcomeRecord{sequence, swapped};
}

std::string exchange_prefix(std::string_view exchange) {
  ByteWriter writer;
  put_name(writer, exchange);
  return name(RecordKind::kExchange, as_text(writer.view()));
}

std::string exchange_record_name(std::string_view exchange, int index) {
  ByteWriter writer;
  writer.put(static_cast<int32_t>(index));
  return exchange_prefix(exchange).append(as_text(writer.view()));
}

Result<ExchangeName> read_exchange_name(std::string_view rest) {
  ByteReader reader(as_bytes(rest));
  ExchangeName result;
  result.exchange = as_text(reader.get_raw(reader.get<uint16_t>()));
  result.index = reader.get<int32_t>();
  HVD_RETURN_IF_ERROR(reader.finish("the name of a stored exchange"));
  return result;
}

Bytes write_exchange(int count, ByteView record) {
  return ByteWriter().put(static_cast<int32_t>(count)).put_raw(record).take();
}

Result<ExchangeRecord> read_exchange(ByteView record) {
  ByteReader reader(record);
  ExchangeRecord result;
  result.count = reader.get<int32_t>();
  const ByteView bytes = reader.get_raw(reader.left());
  result.bytes.assign(bytes.begin(), bytes.end());
  HVD_RETURN_IF_ERROR(reader.finish("a stored record"));
  return result;
}

Bytes write_workers(const std::vector<WorkerRecord>& workers) {
  ByteWriter writer;
  put(writer, workers);
  return writer.take();
}

Result<std::vector<WorkerRecord>> read_workers(ByteView record) {
  ByteReader reader(record);
  std::vector<WorkerRecord> workers;
  get(reader, workers);
  HVD_RETURN_IF_ERROR(reader.finish("the stored places"));
  return workers;
}

Bytes write_revision(uint64_t revision) { return ByteWriter().put(revision).take(); }

Result<uint64_t> read_revision(ByteView record) {
  ByteReader reader(record);
  const auto revision = reader.get<uint64_t>();
  HVD_RETURN_IF_ERROR(reader.finish("the stored revision"));
  return revision;
}

}  // namespace hvd::rendezvous::records
