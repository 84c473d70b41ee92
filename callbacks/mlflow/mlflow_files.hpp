#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "troupe/callbacks/tracking/sink.hpp"
#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"

namespace troupe::internal {

// The files of MLflow's file store: `meta.yaml`, metrics (one line per point)
// and artifacts.

/// The texts of the `meta.yaml` at *path*, by name: one `name: value` a line.
/// Empty if there is no such file.
std::map<std::string, std::string> read_meta(const fs::path& path);

/// *text* as a YAML scalar that reads back as the same text.
std::string yaml_text(const std::string& text);

/// Appends whole *lines* behind the first *known* bytes of a metric file that
/// only this process writes, and cuts off what a failed attempt left there.
/// Creates the file and its folders. Returns the file's new size. Not durable
/// until the file is synced.
expected<std::uint64_t> append_metric_lines(const fs::path& path,
                                            std::uint64_t known,
                                            const std::string& lines);

/// The same for a metric file to which others write, too: cuts off nothing, and
/// leaves out lines that are present behind the first *known* bytes. Returns
/// the size up to which *lines* are known to be present.
expected<std::uint64_t> add_metric_lines(const fs::path& path,
                                         std::uint64_t known,
                                         const std::string& lines);

/// Cuts a metric file to *size* bytes, and further to its last line end, or
/// removes it if nothing remains: MLflow cannot read an empty one. Returns its
/// new size.
expected<std::uint64_t> cut_metric_lines(const fs::path& path,
                                         std::uint64_t size);

/// Copies *file* to *target* durably and in one step: readers see the old file
/// or the new one. Creates the folders above. Rejected if no later attempt can
/// succeed.
sink_result copy_artifact(const fs::path& file, const fs::path& target);

} // namespace troupe::internal
