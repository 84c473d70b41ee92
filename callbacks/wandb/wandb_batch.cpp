#include "troupe/callbacks/wandb/wandb_batch.hpp"

#include <openssl/evp.h>

#include "troupe/callbacks/tracking/row_values.hpp"
#include "troupe/callbacks/tracking/run_files.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/storage/file_copy.hpp"
#include "troupe/runtime/text.hpp"
#include "troupe/runtime/unix_time.hpp"

namespace troupe::internal {

namespace {

constexpr std::size_t max_image = std::size_t{256} << 20;

double seconds_of(std::chrono::system_clock::duration x) {
  return std::chrono::duration<double>(x).count();
}

std::string sha256(std::string_view bytes) {
  unsigned char sum[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  EVP_Digest(bytes.data(), bytes.size(), sum, &size, EVP_sha256(), nullptr);
  std::string result;
  append_hex(result, {reinterpret_cast<const char*>(sum), size});
  return result;
}

bool leads_out(const fs::path& name) {
  auto normal = name.lexically_normal();
  return normal.empty() || normal.is_absolute() || *normal.begin() == "..";
}

std::string json_list(const std::vector<double>& values) {
  return concat('[', joined(values, ",", wandb_json), ']');
}

sink_result rejected(error reason) {
  return sink_fails(sink_failure::kind::rejected, std::move(reason));
}

} // namespace

sink_result wandb_batch::add(const tracker_record& record) {
  struct visitor {
    wandb_batch& self;
    const tracker_record& record;

    sink_result operator()(const journaled_batch& x) {
      self.add_report(x, record);
      return {};
    }
    sink_result operator()(const logged_metrics& x) {
      if (auto row = self.row_at(x.step, record))
        self.add_values(row->items, x.values);
      return {};
    }
    sink_result operator()(const logged_params& x) {
      self.add_config(x.values);
      return {};
    }
    sink_result operator()(const logged_text& x) {
      if (auto row = self.row_at(x.step, record))
        row->items.push_back({x.name, wandb_json(x.text)});
      return {};
    }
    sink_result operator()(const logged_image& x) {
      return self.add_image(x, record);
    }
    sink_result operator()(const logged_histogram& x) {
      self.add_histogram(x, record);
      return {};
    }
    sink_result operator()(const logged_artifact& x) {
      return self.add_artifact(x);
    }
    sink_result operator()(const attempt_record&) {
      self.close_row();
      self.steps_.begin_attempt(static_cast<std::int64_t>(record.attempt));
      self.add_config({{std::string{wandb_attempt_key}, record.attempt}});
      return {};
    }
    sink_result operator()(const run_end_record&) { return {}; }
  };
  return std::visit(visitor{*this, record}, record.content);
}

void wandb_batch::close() {
  close_row();
  if (latest_.empty())
    return;
  std::vector<wandb_item> items;
  for (auto& [name, item] : latest_)
    items.push_back(std::move(item));
  target_.log.append(target_.records.summary(items));
  latest_.clear();
}

void wandb_batch::add_report(const journaled_batch& x,
                             const tracker_record& record) {
  close_row();
  auto index = static_cast<std::int64_t>(x.index);
  auto step = steps_.next_report(index);
  if (!step)
    return;
  row result{*step, 0, record.time, {}};
  add_values(result.items, values_of(x, target_.options.ranks));
  auto& items = result.items;
  items.push_back({std::string{wandb_report_key}, wandb_json(index)});
  items.push_back({"troupe/attempt", wandb_json(x.attempt)});
  if (!x.checkpoint.empty())
    items.push_back({"troupe/checkpoint", wandb_json(x.checkpoint)});
  write(std::move(result));
}

sink_result wandb_batch::add_image(const logged_image& x,
                                   const tracker_record& record) {
  auto bytes = read_file(x.file, max_image);
  if (!bytes)
    return tl::unexpected{unreadable_file(x.file, bytes.error())};
  auto sum = sha256(*bytes);
  fs::path name{concat("media/images/", x.name, "_", x.step, "_",
                       sum.substr(0, 20), ".png")};
  TROUPE_TRY_VOID(add_file(x.file, name, true));
  auto image = row_at(x.step, record);
  if (!image)
    return {};
  auto put = [&](const char* part, const metric_value& value) {
    image->items.push_back({x.name, wandb_json(value), part});
  };
  put("_type", "image-file");
  put("path", name.string());
  put("sha256", sum);
  put("size", bytes->size());
  put("width", x.width);
  put("height", x.height);
  put("format", "png");
  return {};
}

void wandb_batch::add_histogram(const logged_histogram& x,
                                const tracker_record& record) {
  auto values = row_at(x.step, record);
  if (!values)
    return;
  // W&B wants the edges of the buckets, one more than there are buckets.
  std::vector<double> edges{x.min};
  edges.insert(edges.end(), x.limits.begin(), x.limits.end());
  values->items.push_back({x.name, R"("histogram")", "_type"});
  values->items.push_back({x.name, json_list(x.counts), "values"});
  values->items.push_back({x.name, json_list(edges), "bins"});
}

sink_result wandb_batch::add_artifact(const logged_artifact& x) {
  auto files = files_of(x);
  if (!files)
    return tl::unexpected{unreadable_file(x.path, files.error())};
  for (auto& file : *files)
    TROUPE_TRY_VOID(add_file(file.path, file.name, false));
  return {};
}

// W&B's uploader sends what is in the folder `files/`, which must stay complete
// when it is moved: hence a hard link where possible, else a copy.
sink_result wandb_batch::add_file(const fs::path& from, const fs::path& name,
                                  bool is_media) {
  if (leads_out(name))
    return rejected({ec::invalid_argument,
                     "'" + name.string() + "' leads out of W&B's folder"});
  auto to = target_.fragment.files() / name.lexically_normal();
  auto made = make_folders(to.parent_path());
  boost::system::error_code code;
  fs::remove(to, code);
  fs::create_hard_link(from, to, code);
  if (!made || code)
    if (auto ok = copy_file(from, to, copy_sync::no); !ok)
      return ok.error().code == ec::invalid_argument
               ? rejected(ok.error())
               : sink_fails(sink_failure::kind::transient, ok.error());
  target_.log.append(
    target_.records.file(name.lexically_normal().string(), is_media));
  return {};
}

void wandb_batch::add_config(const metrics& values) {
  std::vector<wandb_item> items;
  for (auto& [name, value] : values)
    items.push_back({name, wandb_config_json(value)});
  target_.log.append(target_.records.config(items));
}

void wandb_batch::add_values(std::vector<wandb_item>& items,
                             const metrics& values) const {
  for (auto& [name, value] : values)
    if (is_sent(target_.options.non_finite, value))
      items.push_back({name, wandb_json(value)});
}

wandb_batch::row* wandb_batch::row_at(std::int64_t step,
                                      const tracker_record& record) {
  if (open_ && open_->logged == step)
    return &*open_;
  close_row();
  if (auto next = steps_.next_logged(step))
    open_ = row{*next, step, record.time, {}};
  return open_ ? &*open_ : nullptr;
}

void wandb_batch::close_row() {
  if (!open_)
    return;
  auto x = std::move(*open_);
  open_.reset();
  x.items.push_back({std::string{wandb_logged_key}, wandb_json(x.logged)});
  write(std::move(x));
}

void wandb_batch::write(row x) {
  auto since_start =
    std::max(clock::duration{0}, x.time - target_.run.start_time);
  x.items.push_back({"_step", wandb_json(x.step)});
  x.items.push_back({"_runtime", wandb_json(seconds_of(since_start))});
  x.items.push_back({"_timestamp", wandb_json(unix_seconds(x.time))});
  for (auto& item : x.items)
    latest_[item.key + '\0' + item.part] = item;
  target_.log.append(target_.records.history(x.step, x.items));
}

} // namespace troupe::internal
