#include "troupe/runtime/store/end_request.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>

#include "troupe/runtime/run_layout.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

constexpr std::size_t max_request_bytes = 4096;

/// By `end_kind`. Drivers of another version look for the same words.
constexpr std::string_view words[] = {"stop", "preempt", "finish"};

// One of the words, then whom it is for.
std::optional<end_request> from_text(const std::string& text) {
  auto end = text.find('\n');
  auto word = std::ranges::find(words, std::string_view{text}.substr(0, end));
  auto driver =
    end == text.npos ? std::nullopt : process_from_line(text.substr(end + 1));
  if (!driver || word == std::end(words))
    return std::nullopt;
  return end_request{std::move(*driver),
                     static_cast<end_kind>(word - std::begin(words))};
}

} // namespace

expected<void> send_end_request(const held_folder& run, const end_request& x) {
  return replace_shared_file(
    run.descriptor(), run.path() / run_layout::end_request,
    concat(words[static_cast<std::size_t>(x.how)], '\n', to_line(x.driver)));
}

expected<std::optional<end_request>>
take_end_request(const held_folder& run, const process_identity& me) {
  std::optional<end_request> none;
  // To open the folder makes NFS ask for its latest entries: the request may be
  // another host's. If that fails, the folder was moved: what is held counts.
  (void) held_folder::open(run.path());
  TROUPE_TRY(auto found, run.look_up_link(run_layout::end_request));
  if (!found.is_file())
    return none;
  TROUPE_TRY(auto entry, held_entry::open(run, run_layout::end_request));
  TROUPE_TRY(auto file,
             run.open_file(run_layout::end_request, O_RDONLY, "open"));
  struct stat own {
  }, its{};
  if (::fstat(run.descriptor().get(), &own) != 0
      || ::fstat(file.get(), &its) != 0 || own.st_uid != its.st_uid)
    return none;
  TROUPE_TRY(auto text,
             read_open_file(file, run.path() / run_layout::end_request,
                            max_request_bytes));
  // Not one that has replaced it since: the next call takes that.
  auto aside = concat(run_layout::end_request, ".1");
  TROUPE_TRY_VOID(run.remove_file(aside)); // left by a crash
  TROUPE_TRY_VOID(entry.rename(aside));
  TROUPE_TRY_VOID(run.remove_file(aside));
  auto request = from_text(text);
  return request && request->driver == me ? request : none;
}

} // namespace troupe::internal
