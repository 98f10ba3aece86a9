//! `procctl metrics`, `reload`, `config` and `raw`: the daemon itself.

use procd_protocol::v1::{MetricsParams, ReloadParams, Setting};
use procd_protocol::{ErrorCode, Open};
use serde_json::value::RawValue;

use crate::arguments::{Raw, Role};
use crate::exit::CtlError;
use crate::link::{Link, Links, StartDaemon};
use crate::print::{self, Format};
use crate::render::{Cell, Table};

/// Shows the figures as they are scraped.
/// # Errors
/// [`CtlError::NoDaemon`] when none runs.
pub(crate) async fn metrics(links: &Links, format: Format) -> Result<u8, CtlError> {
    let link = links.operator(StartDaemon::Never).await?;
    let metrics = link.call(&MetricsParams::default()).await?;
    match format {
        Format::Table => print::data(metrics.text.as_bytes())?,
        Format::Json | Format::Jsonl => print::document(format, &metrics)?,
    }
    Ok(0)
}

/// Has the configuration read again.
/// # Errors
/// [`CtlError`]: of a bad one, with file, line and key; the old one is kept.
pub(crate) async fn reload(links: &Links, format: Format) -> Result<u8, CtlError> {
    let link = links.operator(StartDaemon::Never).await?;
    let reloaded = link.call(&ReloadParams::default()).await?;
    match format {
        Format::Table => {
            let list = |keys: &[String]| keys.join(", ");
            let changed = &reloaded.changed;
            let now = if changed.is_empty() { "nothing".to_owned() } else { list(changed) };
            print::data(format!("changed: {now}\n").as_bytes())?;
            if !reloaded.at_next_start.is_empty() {
                let later = list(&reloaded.at_next_start);
                print::data(format!("at the next start: {later}\n").as_bytes())?;
            }
        }
        Format::Json | Format::Jsonl => print::document(format, &reloaded)?,
    }
    Ok(0)
}

/// Shows every setting in force, and where it came from.
/// # Errors
/// [`CtlError::NoDaemon`] when none runs.
pub(crate) async fn config(links: &Links, format: Format) -> Result<u8, CtlError> {
    let settings = links.operator(StartDaemon::Never).await?.status().await?.settings;
    match format {
        Format::Table => print::table(&table(&settings))?,
        Format::Json | Format::Jsonl => print::documents(format, &settings)?,
    }
    Ok(0)
}

fn table(settings: &[Setting]) -> Table {
    let mut table = Table::new(&["KEY", "VALUE", "FROM"]).cutting(&["VALUE", "FROM"]);
    for setting in settings {
        let from = match &setting.lowered_by {
            Some(by) => format!("{}, lowered to fit {by}", setting.origin),
            None => setting.origin.clone(),
        };
        let value = setting.value.as_deref().unwrap_or("-");
        table.push(vec![Cell::new(&setting.key), Cell::new(value), Cell::new(&from)]);
    }
    table
}

/// Calls any method with any parameters: as the owner first, and as the operator where the owner
/// may not, or knows nothing of it.
/// # Errors
/// [`CtlError`], as the daemon says.
pub(crate) async fn raw(links: &Links, raw: &Raw, format: Format) -> Result<u8, CtlError> {
    let params: Box<RawValue> = serde_json::from_str(&raw.params).map_err(|error| {
        CtlError::usage(format!("the parameters are no JSON ({error})"), "give one JSON object")
    })?;
    let answer = answer(links, &raw.method, &params).await?;
    let value: serde_json::Value = serde_json::from_str(answer.get())
        .map_err(|error| CtlError::Answer(format!("the daemon's answer is no JSON ({error})")))?;
    print::document(format, &value)?;
    Ok(0)
}

async fn answer(links: &Links, method: &str, params: &RawValue) -> Result<Box<RawValue>, CtlError> {
    let start = StartDaemon::IfUsed;
    let owner = match links.role() {
        Role::Operator => None,
        Role::Owner | Role::Either => links.owner(start).await?,
    };
    if let Some(Link::Owner(session)) = owner {
        match session.call_raw(method, &params).await.map_err(CtlError::from) {
            Err(CtlError::Refused {
                code: Open::Known(ErrorCode::PermissionDenied | ErrorCode::NotFound),
                ..
            }) if links.role() == Role::Either => {}
            answer => return answer,
        }
    }
    match links.operator(start).await? {
        Link::Operator(operator) => Ok(operator.call_raw(method, &params).await?),
        Link::Owner(_) => Err(CtlError::Answer("an owner came for an operator".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_tells_where_it_came_from_and_what_lowered_it() {
        let setting = |key: &str, value: Option<&str>, lowered_by: Option<&str>| Setting {
            key: key.to_owned(),
            value: value.map(str::to_owned),
            origin: "default".to_owned(),
            lowered_by: lowered_by.map(str::to_owned),
        };
        let settings = [
            setting("shell", None, None),
            setting("limits.running_loop_max", Some("4"), Some("limits.running_session_max")),
        ];
        let expected = "\
KEY                      VALUE  FROM
shell                    -      default
limits.running_loop_max  4      default, lowered to fit limits.running_session_max
";
        assert_eq!(table(&settings).to_text(false, None), expected);
    }
}
