#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"
#include "troupe/runtime/storage/held_folder.hpp"
#include "troupe/runtime/store/result.hpp"
#include "troupe/runtime/values/run_context.hpp"
#include "troupe/trainers/train_error.hpp"
#include "troupe/trainers/train_state.hpp"

namespace troupe {

/// Largest value that a loop may return, in bytes of its file.
inline constexpr std::size_t max_return_bytes = 64 * 1024 * 1024;

namespace internal {

/// Where the ranks of one attempt keep what their loops returned:
/// `return_values/<attempt>/` in the run's folder. No other attempt, however
/// late, writes there.
class return_folder {
public:
  /// Makes the folder, without what a failed start left of *x*'s rank; throws
  /// `train_error`.
  explicit return_folder(const rank_facts& x);

  /// That of the last of *attempts* attempts with values: a run that had ended
  /// when its driver died finishes in an attempt without ranks.
  static fs::path path_of(const fs::path& run, std::uint64_t attempts);

  /// A loop begins, and has not returned yet: rank 0 removes what those of
  /// earlier attempts returned. Throws `train_error`.
  static void clear(const rank_facts& x);

  static std::string name_of(int rank);

  const fs::path& path() const noexcept { return folder_.path(); }

  /// Makes *file* durable, then a manifest with its checksum. Throws
  /// `train_error` if it is larger than `max_return_bytes`.
  void seal(const std::string& file);

  /// Throws `train_error` if what *rank* left in *folder* is not what its
  /// manifest says. Those of earlier versions have none.
  static void check(const fs::path& folder, int rank);

private:
  held_folder folder_;
  int rank_;
  std::uint64_t attempt_;
};

template <class T>
struct returned_value {
  static void write(const rank_facts& x, const T& value) {
    auto object = named_object(return_folder::name_of(x.rank), value);
    return_folder folder{x};
    object.save(folder.path() / object.file);
    folder.seal(object.file);
  }

  static expected<T> read(const fs::path& run, std::uint64_t attempts,
                          int rank) {
    if (run.empty() || attempts == 0)
      return failure(ec::invalid_argument,
                     "no loop has returned a value: no attempt has begun");
    try {
      T value{};
      auto folder = return_folder::path_of(run, attempts);
      return_folder::check(folder, rank);
      restore({named_object(return_folder::name_of(rank), value)}, folder);
      return value;
    } catch (const train_error& x) {
      return tl::unexpected{x.reason()};
    }
  }
};

} // namespace internal

} // namespace troupe
