// Encodes and decodes requests in messages, for new names or new requests. Decoding checks everything;
// the reader's finish() reports truncation.
#pragma once

#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "runtime/wire/request.h"

namespace hvd::runtime {

void put_request(const Request& request, ByteWriter& out);
Status get_request(ByteReader& in, Request* request);
void put_rows(const std::vector<RankRows>& all, ByteWriter& out);
Status get_rows(ByteReader& in, std::vector<RankRows>* all);

}  // namespace hvd::runtime
