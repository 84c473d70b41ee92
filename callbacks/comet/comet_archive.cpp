#include "troupe/callbacks/comet/comet_archive.hpp"

#include <zip.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <memory>

#include "troupe/runtime/storage/append_file.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/storage/json_fields.hpp"
#include "troupe/runtime/text.hpp"
#include "troupe/runtime/unix_time.hpp"

namespace troupe::internal {

namespace {

constexpr std::uint16_t first_day = 1 << 5 | 1; // 1980-01-01, zip's first

using zip_handle = std::unique_ptr<zip_t, decltype(&::zip_discard)>;

// Adds *x*, which must outlive *archive*.
bool add_entry(zip_t* archive, const zip_entry& x) {
  auto* bytes = ::zip_source_buffer(archive, x.bytes.data(), x.bytes.size(), 0);
  auto at = ::zip_file_add(archive, x.name.c_str(), bytes, ZIP_FL_ENC_UTF_8);
  if (at < 0) {
    ::zip_source_free(bytes);
    return false;
  }
  auto index = static_cast<zip_uint64_t>(at);
  return ::zip_file_set_dostime(archive, index, 0, first_day, 0) == 0
         && ::zip_file_set_external_attributes(archive, index, 0,
                                               ZIP_OPSYS_UNIX, 0100644u << 16)
              == 0;
}

using message_kind = comet_message::kind;

constexpr std::size_t max_messages = std::size_t{1} << 30;

sink_result fails(const error& reason) {
  return sink_fails(reason.code == ec::corrupt ? sink_failure::kind::permanent
                                               : sink_failure::kind::transient,
                    reason);
}

error lost(const fs::path& path, std::uint64_t size, std::uint64_t wanted) {
  return {ec::corrupt, concat(path.string(), " has ", size, " of ", wanted,
                              " bytes that were written: remove the run's file "
                              "sinks/comet.offset to write the archive again")};
}

// Makes *bytes* follow the first *at* bytes of the file, durably. Returns
// `ec::corrupt` if the file is shorter than *at*.
expected<void> write_tail(const fs::path& path, std::uint64_t at,
                          std::string_view bytes, const std::stop_token& over) {
  TROUPE_TRY(auto found, look_up(path));
  if (found.size < at)
    return tl::unexpected{lost(path, found.size, at)};
  TROUPE_TRY(auto file, record_file::open(path, over));
  return file.cut(at)
    .and_then([&] { return file.append(bytes); })
    .and_then([&] { return file.commit(); });
}

} // namespace

expected<std::string> make_zip(const std::vector<zip_entry>& entries) {
  auto fails = [](const char* why) {
    return failure(ec::unsupported,
                   std::string{"the zip archive cannot be made: "} + why);
  };
  std::unique_ptr<zip_source_t, decltype(&::zip_source_free)> target{
    ::zip_source_buffer_create(nullptr, 0, 0, nullptr), &::zip_source_free};
  zip_handle archive{
    ::zip_open_from_source(target.get(), ZIP_TRUNCATE, nullptr),
    &::zip_discard};
  if (!archive)
    return fails("there is no memory");
  ::zip_source_keep(target.get()); // The archive frees its own reference.
  for (auto& x : entries)
    if (!add_entry(archive.get(), x))
      return fails(::zip_strerror(archive.get()));
  if (::zip_close(archive.get()) != 0)
    return fails(::zip_strerror(archive.get()));
  (void) archive.release();
  zip_stat_t about{};
  ::zip_source_stat(target.get(), &about);
  std::string result(about.size, '\0');
  if (::zip_source_open(target.get()) != 0
      || ::zip_source_read(target.get(), result.data(), about.size)
           != static_cast<zip_int64_t>(about.size))
    return fails(::zip_error_strerror(::zip_source_error(target.get())));
  ::zip_source_close(target.get());
  return result;
}

expected<std::string> zip_member(std::string_view archive,
                                 const std::string& name) {
  constexpr zip_uint64_t most = 1032; // deflate's best ratio
  auto* bytes =
    ::zip_source_buffer_create(archive.data(), archive.size(), 0, nullptr);
  zip_handle zip{::zip_open_from_source(bytes, ZIP_RDONLY, nullptr),
                 &::zip_discard};
  if (!zip)
    ::zip_source_free(bytes);
  zip_stat_t about{};
  if (zip && ::zip_stat(zip.get(), name.c_str(), 0, &about) == 0
      && about.size / most <= about.comp_size) {
    std::string result(about.size, '\0');
    char more = 0; // The read that finds the end compares the checksum.
    auto* file = ::zip_fopen_index(zip.get(), about.index, 0);
    auto whole = file
                 && ::zip_fread(file, result.data(), about.size)
                      == static_cast<zip_int64_t>(about.size)
                 && ::zip_fread(file, &more, 1) == 0;
    if (file)
      ::zip_fclose(file);
    if (whole)
      return result;
  }
  return failure(ec::corrupt, "the zip archive has no complete entry " + name);
}

namespace json {

template <class Fields>
void fields_of(Fields& f, comet_archive_place& x) {
  f("archive", x.number)("size", x.size)("count", x.count)("packed", x.packed);
}

} // namespace json

comet_archive::comet_archive(comet_settings settings,
                             std::vector<std::string> tags,
                             const tracked_run& run)
  : settings_(std::move(settings)), tags_(std::move(tags)),
    start_ms_(unix_ms(run.start_time)), over_(run.cancelled) {}

fs::path comet_archive::path() const {
  auto name = settings_.experiment_key;
  if (place_.number > 0)
    name += concat("-", place_.number);
  return settings_.offline_directory / (name + ".zip");
}

fs::path comet_archive::messages_path() const {
  return path().replace_extension(".messages");
}

std::string comet_archive::state() const {
  return json::open_object(place_, ",") + '}';
}

sink_result comet_archive::start(const std::string& state) {
  if (!state.empty()) {
    auto read =
      json::read<comet_archive_place>(state, "the state of tracker comet",
                                      json::from_fields<comet_archive_place>);
    if (!read)
      return sink_fails(sink_failure::kind::permanent, read.error());
    place_ = *read;
  }
  if (auto made = make_folders(settings_.offline_directory, 0755); !made)
    return fails(made.error());
  if (place_.packed)
    return {};
  if (auto ok = restore_messages(); !ok)
    return fails(ok.error());
  return {};
}

// Cuts the file to the confirmed messages. If the driver died between packing
// them and saving its state, they are only in the archive.
expected<void> comet_archive::restore_messages() {
  TROUPE_TRY(auto found, look_up(messages_path()));
  if (found.size >= place_.size)
    return write_tail(messages_path(), place_.size, {}, over_);
  TROUPE_TRY(auto archive, look_up(path()));
  if (!archive.exists())
    return tl::unexpected{lost(messages_path(), found.size, place_.size)};
  TROUPE_TRY(auto zip, read_file(path(), max_messages));
  auto messages = zip_member(zip, "messages.json");
  if (!messages || messages->size() < place_.size)
    return tl::unexpected{lost(messages_path(), found.size, place_.size)};
  return write_tail(messages_path(), 0, messages->substr(0, place_.size),
                    over_);
}

std::size_t comet_archive::room(std::chrono::duration<double>) {
  return std::numeric_limits<std::size_t>::max();
}

sink_result comet_archive::send(std::span<const comet_message> messages) {
  if (place_.packed) {
    ++place_.number;
    place_.size = place_.count = 0;
    place_.packed = false;
  }
  std::string text;
  auto count = place_.count;
  for (auto& x : messages)
    text += line_of(x, ++count);
  if (auto ok = write_tail(messages_path(), place_.size, text, over_); !ok)
    return fails(ok.error());
  place_.size += text.size();
  place_.count = count;
  return {};
}

std::string comet_archive::line_of(const comet_message& x,
                                   std::uint64_t id) const {
  auto value = json::value_of(comet_value(x.value));
  auto step = x.step ? json::ordered_document(*x.step) : nullptr;
  json::ordered_document payload;
  std::string type;
  switch (x.what) {
    case message_kind::metric:
      type = "metric_msg";
      payload = {{"local_timestamp", x.time_ms},
                 {"metric",
                  {{"metricName", x.name},
                   {"metricValue", value},
                   {"step", step},
                   {"epoch", nullptr}}}};
      break;
    case message_kind::parameter:
      type = "parameter_msg";
      payload = {{"local_timestamp", x.time_ms},
                 {"param",
                  {{"paramName", x.name},
                   {"paramValue", value},
                   {"source", "manual"},
                   {"step", step}}}};
      break;
    case message_kind::asset: // An archive holds values only.
      if (x.file)
        value = x.file->string();
      [[fallthrough]];
    case message_kind::other:
      type = "log_other";
      payload = {{"key", x.name}, {"value", value}};
      break;
  }
  payload["message_id"] = id;
  return json::text_of({{"payload", payload}, {"type", type}}) + '\n';
}

std::string comet_archive::experiment_json(std::int64_t end_ms) const {
  json::document out{{"offline_id", settings_.experiment_key},
                     {"project_name", settings_.project},
                     {"start_time", start_ms_},
                     {"stop_time", end_ms},
                     {"tags", tags_},
                     {"resume_strategy", place_.number > 0 || settings_.is_known
                                           ? "get_or_create"
                                           : "create"}};
  out["workspace"] = settings_.workspace.empty()
                       ? json::document{}
                       : json::document(settings_.workspace);
  return json::text_of(out);
}

sink_result comet_archive::finish(std::chrono::system_clock::time_point time) {
  if (place_.packed)
    return {};
  auto messages = read_file(messages_path(), max_messages);
  if (!messages)
    return fails(messages.error());
  auto zip = make_zip({{"experiment.json", experiment_json(unix_ms(time))},
                       {"messages.json", messages->substr(0, place_.size)}});
  if (!zip)
    return sink_fails(sink_failure::kind::permanent, zip.error());
  auto ok = may_write(over_, path()).and_then([&] {
    return replace_file(path(), *zip);
  });
  if (!ok)
    return fails(ok.error());
  place_.packed = true;
  boost::system::error_code ignored; // The archive has all messages.
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

} // namespace troupe::internal
