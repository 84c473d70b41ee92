#include "troupe/callbacks/comet/comet_archive.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>

#include "troupe/callbacks/comet/zip_file.hpp"
#include "troupe/callbacks/encoding/record_file.hpp"
#include "troupe/callbacks/encoding/text.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/storage/json_reader.hpp"

namespace troupe {

namespace {

using kind = comet_message::kind;

constexpr std::size_t max_messages = std::size_t{1} << 30;

std::string in_quotes(std::string_view text) {
  std::string result;
  append_json(result, text);
  return result;
}

sink_result fails(const error& reason) {
  return sink_fails(reason.code == ec::corrupt ? sink_failure::kind::permanent
                                               : sink_failure::kind::transient,
                    reason);
}

error lost(const fs::path& path, std::uint64_t size, std::uint64_t wanted) {
  return {ec::corrupt, path.string() + " has " + std::to_string(size) + " of "
                         + std::to_string(wanted)
                         + " bytes that were written: remove the run's file "
                           "sinks/comet.offset to have the archive written "
                           "again"};
}

// Writes *bytes* at *at*, and nothing stays behind them. `ec::corrupt` if there
// is less before them: no one fills that with zeros.
expected<void> write_tail(const fs::path& path, std::uint64_t at,
                          std::string_view bytes, const std::stop_token& over) {
  if (auto ok = may_write(over, path); !ok)
    return ok;
  auto found = look_up(path);
  if (!found)
    return tl::unexpected{found.error()};
  if (found->size < at)
    return tl::unexpected{lost(path, found->size, at)};
  const auto is_begin = at == 0;
  auto file = open_file(path, O_WRONLY | O_CREAT, "open");
  if (!file)
    return tl::unexpected{file.error()};
  if (::ftruncate(file->get(), static_cast<off_t>(at)) != 0)
    return tl::unexpected{storage_error("cut the tail of", path, errno)};
  while (!bytes.empty()) {
    auto n =
      ::pwrite(file->get(), bytes.data(), bytes.size(), static_cast<off_t>(at));
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0)
      return tl::unexpected{storage_error("write", path, errno)};
    at += static_cast<std::uint64_t>(n);
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  auto synced = sync_file(*file, path);
  return is_begin && synced ? sync_folder(path.parent_path()) : synced;
}

} // namespace

comet_archive::comet_archive(comet_settings settings,
                             std::vector<std::string> tags,
                             const tracked_run& run)
  : settings_(std::move(settings)), tags_(std::move(tags)),
    start_ms_(unix_ms(run.start_time)), over_(run.cancelled) {}

fs::path comet_archive::path() const {
  auto name = settings_.experiment_key;
  if (number_ > 0)
    name += "-" + std::to_string(number_);
  return settings_.offline_directory / (name + ".zip");
}

fs::path comet_archive::messages_path() const {
  return path().replace_extension(".messages");
}

std::string comet_archive::state() const {
  return json::document{{"archive", number_},
                        {"size", size_},
                        {"count", count_},
                        {"packed", packed_}}
    .dump();
}

sink_result comet_archive::start(const std::string& state) {
  if (!state.empty()) {
    auto read = json::read<bool>(
      state, "the state of tracker comet", [&](const json::document& in) {
        number_ = json::to_unsigned(in.at("archive"));
        size_ = json::to_unsigned(in.at("size"));
        count_ = json::to_unsigned(in.at("count"));
        packed_ = in.at("packed").get<bool>();
        return true;
      });
    if (!read)
      return sink_fails(sink_failure::kind::permanent, read.error());
  }
  if (auto made = make_folders(settings_.offline_directory, 0755); !made)
    return fails(made.error());
  if (packed_)
    return {};
  if (auto ok = restore_messages(); !ok)
    return fails(ok.error());
  return {};
}

/// Leaves the confirmed messages. A driver that died right after it had packed
/// them did not save that: then they are in the archive only.
expected<void> comet_archive::restore_messages() {
  auto found = look_up(messages_path());
  if (!found)
    return tl::unexpected{found.error()};
  if (found->size >= size_)
    return write_tail(messages_path(), size_, {}, over_);
  auto archive = look_up(path());
  if (!archive)
    return tl::unexpected{archive.error()};
  if (!archive->exists())
    return tl::unexpected{lost(messages_path(), found->size, size_)};
  auto zip = read_file(path(), max_messages);
  if (!zip)
    return tl::unexpected{zip.error()};
  auto messages = zip_member(*zip, "messages.json");
  if (!messages || messages->size() < size_)
    return tl::unexpected{lost(messages_path(), found->size, size_)};
  return write_tail(messages_path(), 0, messages->substr(0, size_), over_);
}

std::size_t comet_archive::room() {
  return std::numeric_limits<std::size_t>::max();
}

sink_result comet_archive::send(std::span<const comet_message> messages) {
  if (packed_) {
    ++number_;
    size_ = count_ = 0;
    packed_ = false;
  }
  std::string text;
  auto count = count_;
  for (auto& x : messages)
    text += line_of(x, ++count);
  if (auto ok = write_tail(messages_path(), size_, text, over_); !ok)
    return fails(ok.error());
  size_ += text.size();
  count_ = count;
  return {};
}

std::string comet_archive::line_of(const comet_message& x,
                                   std::uint64_t id) const {
  auto name = in_quotes(x.name), value = comet_json(x.value);
  auto time = std::to_string(x.time_ms);
  auto step = x.step ? std::to_string(*x.step) : std::string{"null"};
  std::string type, payload;
  switch (x.what) {
    case kind::metric:
      type = "metric_msg";
      payload = R"("local_timestamp":)" + time + R"(,"metric":{"metricName":)"
                + name + R"(,"metricValue":)" + value + R"(,"step":)" + step
                + R"(,"epoch":null})";
      break;
    case kind::parameter:
      type = "parameter_msg";
      payload = R"("local_timestamp":)" + time + R"(,"param":{"paramName":)"
                + name + R"(,"paramValue":)" + value
                + R"(,"source":"manual","step":)" + step + "}";
      break;
    case kind::asset: // An archive has values only.
      value = x.file ? in_quotes(x.file->string()) : value;
      [[fallthrough]];
    case kind::other:
      type = "log_other";
      payload = R"("key":)" + name + R"(,"value":)" + value;
      break;
  }
  return R"({"payload":{)" + payload + R"(,"message_id":)" + std::to_string(id)
         + R"(},"type":")" + type + "\"}\n";
}

std::string comet_archive::experiment_json(std::int64_t end_ms) const {
  json::document out{{"offline_id", settings_.experiment_key},
                     {"project_name", settings_.project},
                     {"start_time", start_ms_},
                     {"stop_time", end_ms},
                     {"tags", tags_},
                     {"resume_strategy", number_ > 0 || settings_.is_known
                                           ? "get_or_create"
                                           : "create"}};
  out["workspace"] = settings_.workspace.empty()
                       ? json::document{}
                       : json::document(settings_.workspace);
  return out.dump(-1, ' ', false, json::document::error_handler_t::replace);
}

sink_result comet_archive::finish(std::chrono::system_clock::time_point time) {
  if (packed_)
    return {};
  auto messages = read_file(messages_path(), max_messages);
  if (!messages)
    return fails(messages.error());
  auto zip = make_zip({{"experiment.json", experiment_json(unix_ms(time))},
                       {"messages.json", messages->substr(0, size_)}});
  if (!zip)
    return sink_fails(sink_failure::kind::permanent, zip.error());
  auto ok = may_write(over_, path()).and_then([&] {
    return replace_file(path(), *zip);
  });
  if (!ok)
    return fails(ok.error());
  packed_ = true;
  boost::system::error_code ignored; // The archive has all of it.
  fs::remove(messages_path(), ignored);
  return {};
}

expected<std::vector<fs::path>> comet_archives(const comet_settings& settings) {
  std::vector<fs::path> result;
  boost::system::error_code code;
  for (fs::directory_iterator i{settings.offline_directory, code}, end;
       !code && i != end; i.increment(code)) {
    auto name = i->path().stem().string();
    auto& key = settings.experiment_key;
    if (i->path().extension() == ".zip"
        && (name == key || name.starts_with(key + '-')))
      result.push_back(i->path());
  }
  if (code && code.value() != ENOENT)
    return tl::unexpected{
      storage_error("list", settings.offline_directory, code.value())};
  std::ranges::sort(result);
  return result;
}

} // namespace troupe
