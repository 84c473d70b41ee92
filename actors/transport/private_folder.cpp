#include "troupe/actors/transport/private_folder.hpp"

#include <cerrno>
#include <cstdlib>
#include <string>
#include <system_error>
#include <utility>

#include <unistd.h>

namespace troupe {

expected<private_folder> private_folder::make() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  auto base = runtime && *runtime ? std::string{runtime} : std::string{"/tmp"};
  if (access(base.c_str(), W_OK | X_OK) != 0)
    base = "/tmp";
  auto path = base + "/troupe-XXXXXX";
  if (mkdtemp(path.data()) == nullptr)
    return failure(ec::storage, "no folder could be made in " + base + ": "
                                  + std::generic_category().message(errno));
  return private_folder{path};
}

private_folder::private_folder(fs::path path)
  : path_(std::move(path)), maker_(getpid()) {}

private_folder::private_folder(private_folder&& other) noexcept
  : path_(std::exchange(other.path_, {})), maker_(other.maker_) {}

private_folder& private_folder::operator=(private_folder&& other) noexcept {
  if (this != &other) {
    remove();
    path_ = std::exchange(other.path_, {});
    maker_ = other.maker_;
  }
  return *this;
}

private_folder::~private_folder() {
  remove();
}

void private_folder::remove() noexcept {
  boost::system::error_code ignored;
  if (!path_.empty() && maker_ == getpid())
    fs::remove_all(path_, ignored);
}

} // namespace troupe
