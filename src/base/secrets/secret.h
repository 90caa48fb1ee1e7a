// The job's secret, and proofs of its possession by HMAC-SHA256 (hmac.h). A Secret cannot be
// logged. Call hex() only to pass the secret on.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/result.h"
#include "base/secrets/hmac.h"

namespace hvd {

class Secret {
 public:
  // Makes a secret of 32 random bytes from the kernel.
  static Secret random();
  // Makes a secret of these bytes, 1 to 1,024.
  static Result<Secret> from_bytes(ByteView bytes);
  static Result<Secret> from_hex(std::string_view hex);

  Secret(Secret&&) = default;
  Secret(const Secret&) = default;
  Secret& operator=(Secret&&) = default;
  Secret& operator=(const Secret&) = default;
  ~Secret();

  std::string hex() const;
  Digest sign(ByteView message) const;
  // Returns the key for one purpose, by HKDF-SHA256 (RFC 5869) without salt. The key reveals neither
  // this secret nor the key for another purpose.
  Digest derive(std::string_view purpose) const;

 private:
  explicit Secret(Bytes bytes) : bytes_(std::move(bytes)) {}
  Bytes bytes_;
};

// Compares in a time that does not depend on the position of the first difference.
bool equal_in_constant_time(ByteView a, ByteView b);

void fill_random(std::span<std::byte> bytes);
std::string to_hex(ByteView bytes);
// Returns `bytes` random bytes as hexadecimal digits, for a name that no other process can guess.
std::string random_hex(size_t bytes);
// Writes the bytes as hexadecimal digits, two for each byte, to `digits`.
void write_hex(ByteView bytes, char* digits);
Result<Bytes> from_hex(std::string_view hex);

// Random numbers from the kernel. std::random_device needs glibc 2.36, and the files of a release must run with 2.34.
inline uint64_t random_number() {
  uint64_t number = 0;
  fill_random(std::as_writable_bytes(std::span(&number, 1)));
  return number;
}

// Returns a number from 0 to less than 1.
inline double random_fraction() { return static_cast<double>(random_number() >> 11) * 0x1p-53; }

// The writer of a pipe must write everything and close the pipe within this time.
constexpr double kPipeSeconds = 5;

// Reads a whole file or anonymous pipe that only its owner can read: a regular file of the effective user (mode & 077
// = 0), or a regular file of root that a group may read (mode & 027 = 0). Checks the opened file, not its name. Blocks
// until `deadline`. An error for any other file, and for more than `limit` bytes; it names the file as `shown`, and has
// no byte of the contents.
Result<std::string> read_private_file(const std::string& path, std::string_view shown, size_t limit,
                                      Deadline deadline = Deadline::after_seconds(kPipeSeconds));

// Reads a job's token, at least 32 hexadecimal digits, from --token-file or --token-fd; the caller passes exactly one
// of them. The rules of read_private_file() hold for both. Closes the descriptor unless it is a standard stream.
Result<Secret> read_token(const std::string& path, std::optional<int> fd,
                          Deadline deadline = Deadline::after_seconds(kPipeSeconds));

// Creates a token file with mode 0600, in a directory that no other user can write. Fails if the
// file exists.
Status create_token_file(const std::string& path);

}  // namespace hvd
