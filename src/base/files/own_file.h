// Opens files for writing in directories to which other users may write. A symbolic link, or a file of
// another user, could lead to any file of this user there.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "base/unique_fd.h"

namespace hvd {

// Opens `path` for writing, and creates it where it is missing. `flags`: O_TRUNC, O_APPEND, O_RDWR. Refuses
// a file of another user than this one and root, and a symbolic link of another user as last component.
// Does not wait for the reader of a FIFO (ENXIO). `what`: the word before the path in an error, as in
// "cannot write to /x". After an error, errno says why, in all three functions.
Result<UniqueFd> open_own_file(const std::string& path, int flags, std::string_view what = "to ");
// As open_own_file(), for the file `name` in a directory of this user. `path`: for errors.
Result<UniqueFd> open_own_file_in(const UniqueFd& folder, const std::string& name, int flags,
                                  const std::string& path);
// Opens the directory, and creates it where it is missing. Refuses a symbolic link as last component, and
// a directory of another user than this one and root.
Result<UniqueFd> open_own_folder(const std::string& path);

}  // namespace hvd
