//! The rows as Parquet: the columns of the CSV under the same names, with types. The file is
//! written at once when all rows are done, so a file of that name is complete.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::basic::{ConvertedType, Repetition, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::{KeyValue, ParquetMetaDataReader};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::Type;

use super::log::HEADER;
use crate::exit::Failure;
use crate::output::{Sweep, SweepPoint};

/// Rows of a group: how many rows are held as columns at once.
const GROUP_ROWS: usize = 1 << 16;

/// Keys of the footer.
const SWEEP_KEY: &str = "upcall.sweep";
const CURVE_KEY: &str = "upcall.curve";

/// The type of a column's fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Count,
    /// Empty in the CSV without a simulation.
    CountOrNone,
    Number,
    /// 0 or 1 in the CSV.
    Truth,
}

/// Whether a results file of this name is to be Parquet.
pub fn is_parquet(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("parquet"))
}

/// The CSV that keeps the rows until all are done.
pub fn log_path(path: &Path) -> PathBuf {
    beside(path, ".csv")
}

/// The footer of a finished file. Nothing else is read, because the crate's row reader panics on a
/// damaged file.
#[derive(Debug)]
pub struct Finished {
    /// Fingerprint of the sweep.
    pub sweep: String,
    pub rows: u64,
    pub curve: Vec<SweepPoint>,
}

/// The footer of the file at `path`; `None` if there is no file.
///
/// # Errors
/// A file of another kind, which stays as it is.
pub fn finished(path: &Path) -> Result<Option<Finished>, Failure> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Failure::of_file(path, error)),
    };
    let is_file = file.metadata().is_ok_and(|metadata| metadata.is_file());
    if !is_file {
        return Err(Failure::about_file(path, "found no regular file, expected one"));
    }
    let other = "found another kind of file, expected none or one of this sweep";
    let read = ParquetMetaDataReader::new().parse_and_finish(&file).ok();
    let finished = read.and_then(|metadata| {
        let metadata = metadata.file_metadata();
        let value = |key| {
            let pairs = metadata.key_value_metadata()?;
            pairs.iter().find(|pair| pair.key == key)?.value.as_deref()
        };
        let sweep = value(SWEEP_KEY)?.to_owned();
        let curve = serde_json::from_str(value(CURVE_KEY)?).ok()?;
        Some(Finished { sweep, rows: u64::try_from(metadata.num_rows()).ok()?, curve })
    });
    finished.map(Some).ok_or_else(|| Failure::about_file(path, other))
}

/// Writes `rows`, lines of a CSV, to a file beside `path`, then moves that file to `path`.
///
/// # Errors
/// The system's error, such as a full disk. Nothing is left behind.
pub fn write(path: &Path, rows: &str, done: &Sweep) -> Result<(), Failure> {
    let draft = beside(path, ".tmp");
    let written = write_draft(&draft, rows, done)
        .and_then(|()| std::fs::rename(&draft, path).map_err(ParquetError::from))
        .and_then(|()| sync_folder(path));
    written.map_err(|error| {
        let _ = std::fs::remove_file(&draft);
        let error = match error {
            ParquetError::External(cause) => cause,
            other => other.into(),
        };
        let log = log_path(path);
        Failure::about_file(
            path,
            format_args!("{error}; all rows are in {}, the same command continues", log.display()),
        )
        .because(error)
    })
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name: OsString = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// Writes the folder, without which a crash could lose the file's name.
fn sync_folder(path: &Path) -> Result<(), ParquetError> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    Ok(File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?)
}

fn write_draft(path: &Path, rows: &str, done: &Sweep) -> Result<(), ParquetError> {
    let schema = Arc::new(schema_of_rows()?);
    let curve = serde_json::to_string(&done.curve)
        .map_err(|error| ParquetError::External(Box::new(error)))?;
    let pairs = [(SWEEP_KEY, done.sweep.clone()), (CURVE_KEY, curve)];
    let pairs = pairs.map(|(key, value)| KeyValue::new(key.to_owned(), value));
    let properties = WriterProperties::builder().set_key_value_metadata(Some(pairs.to_vec()));
    let properties = Arc::new(properties.build());
    let mut writer = SerializedFileWriter::new(File::create(path)?, schema, properties)?;
    let mut lines = rows.lines().peekable();
    while lines.peek().is_some() {
        let mut group = writer.next_row_group()?;
        let rows: Vec<Vec<&str>> =
            lines.by_ref().take(GROUP_ROWS).map(|line| line.split(',').collect()).collect();
        for (place, (_, kind)) in columns().enumerate() {
            let fields = rows.iter().map(|row| row.get(place).copied().unwrap_or(""));
            write_column(&mut group, kind, fields)?;
        }
        group.close()?;
    }
    writer.into_inner()?.sync_all()?;
    Ok(())
}

fn write_column<'r>(
    group: &mut SerializedRowGroupWriter<'_, File>,
    kind: Kind,
    fields: impl Iterator<Item = &'r str>,
) -> Result<(), ParquetError> {
    let missing = || ParquetError::General("a column too many".to_owned());
    let mut column = group.next_column()?.ok_or_else(missing)?;
    match kind {
        Kind::Text => {
            let values: Vec<ByteArray> = fields.map(ByteArray::from).collect();
            column.typed::<ByteArrayType>().write_batch(&values, None, None)?;
        }
        Kind::Count => {
            let values = fields.map(parsed).collect::<Result<Vec<i64>, _>>()?;
            column.typed::<Int64Type>().write_batch(&values, None, None)?;
        }
        Kind::CountOrNone => {
            let fields: Vec<&str> = fields.collect();
            let levels: Vec<i16> = fields.iter().map(|field| (!field.is_empty()).into()).collect();
            let values = fields.into_iter().filter(|field| !field.is_empty()).map(parsed);
            let values = values.collect::<Result<Vec<i64>, _>>()?;
            column.typed::<Int64Type>().write_batch(&values, Some(&levels), None)?;
        }
        Kind::Number => {
            let values = fields.map(parsed).collect::<Result<Vec<f64>, _>>()?;
            column.typed::<DoubleType>().write_batch(&values, None, None)?;
        }
        Kind::Truth => {
            let values: Vec<bool> = fields.map(|field| field == "1").collect();
            column.typed::<BoolType>().write_batch(&values, None, None)?;
        }
    }
    column.close()
}

fn parsed<T: core::str::FromStr>(field: &str) -> Result<T, ParquetError> {
    let wrong =
        |_| ParquetError::General(format!("found {field:?} in the rows, expected a number"));
    field.parse().map_err(wrong)
}

/// The names of the CSV, each with the type of its fields.
fn columns() -> impl Iterator<Item = (&'static str, Kind)> {
    HEADER.trim_end().split(',').map(|name| {
        let kind = match name {
            "sweep" | "policy" | "test" => Kind::Text,
            "utilization" => Kind::Number,
            "admitted" => Kind::Truth,
            "jobs" | "misses" | "switches" | "busy_ns" | "duration_ns" => Kind::CountOrNone,
            _ => Kind::Count,
        };
        (name, kind)
    })
}

fn schema_of_rows() -> Result<Type, ParquetError> {
    let fields = columns().map(|(name, kind)| {
        let (physical, converted) = match kind {
            Kind::Text => (Physical::BYTE_ARRAY, ConvertedType::UTF8),
            Kind::Count | Kind::CountOrNone => (Physical::INT64, ConvertedType::NONE),
            Kind::Number => (Physical::DOUBLE, ConvertedType::NONE),
            Kind::Truth => (Physical::BOOLEAN, ConvertedType::NONE),
        };
        let repetition = match kind {
            Kind::CountOrNone => Repetition::OPTIONAL,
            _ => Repetition::REQUIRED,
        };
        Type::primitive_type_builder(name, physical)
            .with_repetition(repetition)
            .with_converted_type(converted)
            .build()
            .map(Arc::new)
    });
    Type::group_type_builder("sweep").with_fields(fields.collect::<Result<_, _>>()?).build()
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::file::reader::{FileReader, SerializedFileReader};

    /// With a simulation and without one.
    fn text(rows: usize) -> String {
        let row = |set: usize| match set % 3 {
            0 => format!("00f0,{set},rmdp,0.700001,4,1,20000,1,exact,10,0,7,99,100\n"),
            _ => format!("00f0,{set},ps,1.000000,4,1,0,0,,,,,,\n"),
        };
        (0..rows).map(row).collect()
    }

    fn done() -> Sweep {
        let point = SweepPoint { utilization: 0.700001, sets: 3, ..SweepPoint::default() };
        let (sweep, curve) = ("00f0".to_owned(), vec![point]);
        Sweep { mode: "sweep", sweep, sets: 3, done: 3, resumed: 0, curve }
    }

    #[test]
    fn rows_of_several_groups_are_complete() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.parquet");
        assert!(finished(&path).unwrap().is_none());
        for count in [0, 1, GROUP_ROWS, GROUP_ROWS + 5] {
            write(&path, &text(count), &done()).unwrap();
            let found = finished(&path).unwrap().unwrap();
            assert_eq!((&*found.sweep, found.rows), ("00f0", count as u64));
            assert_eq!((found.curve[0].utilization, found.curve[0].sets), (0.700001, 3));
            let reader = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
            let sets = reader.get_row_iter(None).unwrap().enumerate().all(|(set, row)| {
                let row = row.unwrap();
                row.get_column_iter().nth(1).unwrap().1.to_string() == set.to_string()
            });
            assert!(sets, "{count} rows");
        }
        // No temporary file is left.
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_damaged_file_is_refused_without_a_panic() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.parquet");
        write(&path, &text(5), &done()).unwrap();
        let good = std::fs::read(&path).unwrap();
        for cut in (0..good.len()).step_by(7) {
            std::fs::write(&path, &good[..cut]).unwrap();
            let error = finished(&path).unwrap_err().to_string();
            assert!(error.contains("found another kind of file"), "{error}");
        }
        for place in 0..good.len() {
            let mut bad = good.clone();
            bad[place] ^= [0x01, 0x10, 0x80, 0xff][place % 4];
            std::fs::write(&path, &bad).unwrap();
            let _ = finished(&path);
        }
    }
}
