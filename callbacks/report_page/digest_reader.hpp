#pragma once

#include <cstdint>
#include <stop_token>

#include "troupe/callbacks/report_page/journal_digest.hpp"
#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"

namespace troupe::internal {

/// Follows a run's journal: keeps a digest of what it has read of it, in
/// bounded memory, so that the next look costs little more than what is new.
class digest_reader {
public:
  /// `ec::storage` if there is no folder *run_path* or no journal in it,
  /// `ec::invalid_argument` if it is not the folder of a run.
  static expected<digest_reader> open(const fs::path& run_path);

  /// Reads what was added; `ec::stopped` soon after *cancelled* was asked to
  /// stop. Damaged lines are noted in the digest.
  expected<void> read(const std::stop_token& cancelled = {});

  const journal_digest& digest() const noexcept { return digest_; }

  /// The run's folder, absolute.
  const fs::path& path() const noexcept { return path_; }

private:
  explicit digest_reader(fs::path path) : path_(std::move(path)) {}

  fs::path path_;
  std::uint64_t offset_ = 0; ///< Bytes of the journal that were read.
  journal_digest digest_;
};

} // namespace troupe::internal
