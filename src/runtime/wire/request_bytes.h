// What ranks ask for, as bytes of a message: where a name is new, or what is asked for it.
// Decoding trusts nothing; what is cut is seen when the reader finishes.
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
