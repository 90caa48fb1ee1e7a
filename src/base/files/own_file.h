// Opens files for writing in directories to which other users may write. In such a directory, another
// user's symbolic link could lead to any file of this user.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "base/unique_fd.h"

namespace hvd {

// Opens `path` for writing, and creates it if it is missing. `flags`: O_TRUNC, O_APPEND, O_RDWR. Refuses a file
// that belongs neither to this user nor to root, and another user's symbolic link as last component. Does not wait
// for a FIFO's reader (ENXIO). `what`: the words between "cannot write " and the path in errors. After an error of
// these three functions, errno has the reason.
Result<UniqueFd> open_own_file(const std::string& path, int flags, std::string_view what = "to ");
// Like open_own_file(), for the file `name` in a directory of this user. Errors name `path`.
Result<UniqueFd> open_own_file_in(const UniqueFd& folder, const std::string& name, int flags,
                                  const std::string& path);
// Opens the directory, and creates it if it is missing. Refuses a symbolic link as last component,
// and a directory that belongs neither to this user nor to root.
Result<UniqueFd> open_own_folder(const std::string& path);

}  // namespace hvd
