use super::*;
use crate::show::tests::{assert_explained, header};

#[test]
fn the_page_explains_every_column_of_ps() {
    let status = Status::default();
    for table in [cpus(&status), domains(&status), activities(&status)] {
        assert_explained(&header(&table));
    }
    assert_explained(&["hand-off cost".to_owned()]);
}
