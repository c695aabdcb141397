// Tables with the circumstances they were measured in: Markdown as they are finished, JSON at the
// end.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "backend/backend.h"
#include "openjev_bench/arguments.h"

namespace openjev::bench {

using Cell = std::variant<std::monostate, std::int64_t, double, std::string>;  // nothing: "-", null
using Fact = std::pair<std::string, std::string>;

struct Column {
  std::string heading;  // "median ms"; in the record "median_ms"
  int decimals = 3;     // of float cells in Markdown
};

struct Table {
  std::string title;
  std::vector<Column> columns;
  std::vector<Fact> facts;
  std::vector<std::vector<Cell>> rows;  // as many cells as columns
  bool printed = true;                  // false: for the record only
};

void print_markdown(const Table& table, std::ostream& out);

class Report {
 public:
  explicit Report(const Arguments& arguments) : arguments_(arguments) {}

  // A table without rows, its facts as they are before the measurement.
  Table begin(std::string title, std::vector<Column> columns, const Backend& backend) const;
  // Takes the clocks again, prints the table and keeps it.
  void end(Table table, const Backend& backend);
  // Throws openjev::Error when the file cannot be written.
  void write_json(const std::string& file) const;

 private:
  const Arguments& arguments_;
  std::vector<Table> tables_;
};

}  // namespace openjev::bench
