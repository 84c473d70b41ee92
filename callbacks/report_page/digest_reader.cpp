#include "troupe/callbacks/report_page/digest_reader.hpp"

#include "troupe/runtime/run_layout.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/store/journal_reader.hpp"
#include "troupe/runtime/store/run_folder.hpp"

namespace troupe::internal {

namespace {

fs::path journal_of(const fs::path& run_path) {
  return run_path / run_layout::journal;
}

expected<void> expect_journal(const fs::path& run_path) {
  TROUPE_TRY_VOID(expect_run_folder(run_path));
  TROUPE_TRY(auto journal, look_up(journal_of(run_path)));
  if (journal.exists())
    return {};
  return failure(ec::storage, "the run " + run_path.string()
                                + " has lost its journal.jsonl");
}

} // namespace

expected<digest_reader> digest_reader::open(const fs::path& given) {
  TROUPE_TRY(auto path, absolute_path(given));
  if (path.filename() == ".") // "run/" ends in one
    path = path.parent_path();
  TROUPE_TRY_VOID(expect_journal(path));
  return digest_reader{std::move(path)};
}

expected<void> digest_reader::read(const std::stop_token& cancelled) {
  TROUPE_TRY(auto found, look_up(journal_of(path_)));
  if (found.exists() && found.size < offset_) { // It is another one now.
    offset_ = 0;
    digest_ = {};
  }
  TROUPE_TRY(auto reader, journal_reader::open(journal_of(path_), offset_));
  for (;;) {
    if (cancelled.stop_requested())
      return failure(ec::stopped,
                     "no one waits for the report page of " + path_.string());
    auto entry = reader.next();
    offset_ = reader.offset();
    if (entry && !*entry)
      return {};
    if (entry)
      digest_.add(**entry);
    else if (entry.error().code == ec::corrupt)
      digest_.add_damage(entry.error().message);
    else
      return tl::unexpected{entry.error()};
  }
}

} // namespace troupe::internal
